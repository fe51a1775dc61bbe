"""`.ci/run` lets nothing through: not a failing test, not a skip, but for the one skip that is allowed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = ("prometheus", "systemd-analyze", "gcc", "apt-get", "sudo")


def run_ci(folder: Path, pytest_says: str, *, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script with a `make` that prints what pytest would, and with stand-ins for what it looks for."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    programs = folder / "bin"
    programs.mkdir()
    (folder / "said").write_text(pytest_says)
    make = f'#!/bin/sh\necho "make $1" >> "{folder}/called"\n'
    make += f'if [ "$1" = test ]; then cat "{folder}/said"; exit {status}; fi\n'
    for name, text in {"make": make, **dict.fromkeys(PROGRAMS, "#!/bin/sh\nexit 0\n")}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return subprocess.run(
        [folder / ".ci" / "run"],
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_all_passed_is_a_pass_and_the_summary_is_the_last_line(tmp_path: Path) -> None:
    done = run_ci(tmp_path, "tests/a.py ..\n==== 2 passed in 0.10s ====\n")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "==== 2 passed in 0.10s ===="
    assert (tmp_path / "called").read_text() == "make lint\nmake test\n"


@pytest.mark.parametrize(
    ("reason", "passes"),
    [("../shared is absent", True), ("prometheus is not installed", False), ("no C compiler", False)],
)
def test_only_the_absent_recordings_may_skip_a_test(tmp_path: Path, reason: str, *, passes: bool) -> None:
    said = f"SKIPPED [1] tests/a.py:3: {reason}\n==== 1 passed, 1 skipped in 0.10s ====\n"
    done = run_ci(tmp_path, said)
    assert (done.returncode == 0) is passes
    assert passes or reason in done.stderr


def test_a_failing_test_fails_it(tmp_path: Path) -> None:
    assert run_ci(tmp_path, "==== 1 failed in 0.10s ====\n", status=2).returncode != 0
