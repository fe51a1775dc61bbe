"""Labelled recordings of faults and of healthy look-alikes, where they lie beside the checkout, judged by the replay command and their own scorer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).parents[2].parent / "shared" / "scenarios"


@pytest.mark.slow
def test_every_labelled_recording_is_judged_right() -> None:
    if not (SCENARIOS / "score.py").is_file():
        pytest.skip("labelled recordings (../shared/scenarios) are not here")
    command = f"{sys.executable} -m watchtower replay {{recording}} --config {{config}} --format json"
    done = subprocess.run(
        [sys.executable, SCENARIOS / "score.py", "--dir", SCENARIOS, "--command", command, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    failed = json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout
    assert done.returncode == 0, (
        f"{failed if isinstance(failed, str) else json.dumps(failed)[-4000:]}\n{done.stderr}"
    )
