"""The demo as a newcomer runs it, with the daemon killed on the way."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LIMIT_S = 240  # the demo promises less than 180; a busy machine may need a little more


def test_the_demo_names_the_deadlock_and_rank_3_and_pages_once_although_the_daemon_is_killed(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "watchtower.simulate.demo", "--kill-daemon"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "LANG": "C.UTF-8"},
    )
    last = done.stdout.rstrip().splitlines()[-1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert last.startswith("demo: ok: deadlock and rank 3 named")
    assert last.endswith("with the daemon killed 2 times on the way")
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == [], "the demo leaves nothing behind"
