"""The stand-in one layer higher says over the pipe what the simulated library would have shown."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from watchtower.agent.nvml.protocol import read_sweep
from watchtower.simulate.nvml_library import SimulatedGpu, write_state
from watchtower.simulate.sampler import sweep

GPU = SimulatedGpu(
    uuid="GPU-1", power_w=912.4, utilization_pct=99, sm_clock_mhz=None, procs=((41, 1000), (42, 24))
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    write_state(path, [GPU, SimulatedGpu(uuid="GPU-2")])
    return path


def test_a_sweep_reads_every_board_as_the_agent_decodes_it(state: Path) -> None:
    answer = read_sweep(json.dumps(sweep(7, state)).encode())
    assert (answer.sweep, answer.driver_version, len(answer.boards)) == (7, "580.95.05", 2)
    board = answer.boards[0]
    assert (board.uuid, board.power_w, board.power_limit_w, board.utilization_pct) == (
        "GPU-1",
        912.4,
        1100,
        99,
    )
    assert board.processes == ((41, 1000.0), (42, 24.0))
    assert answer.boards[1].processes == ()


def test_a_reading_that_the_state_lacks_is_not_known_rather_than_zero(state: Path) -> None:
    assert read_sweep(json.dumps(sweep(1, state)).encode()).boards[0].sm_clock_mhz is None


def test_without_a_state_file_it_says_that_no_board_can_be_read(tmp_path: Path) -> None:
    answer = read_sweep(json.dumps(sweep(1, tmp_path / "absent")).encode())
    assert answer.failed is not None
    assert "absent" in answer.failed.detail


def test_it_answers_each_question_and_leaves_when_the_agent_hangs_up(state: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "watchtower.simulate.sampler"],
        input=b'{"sweep": 1}\n{"sweep": 2}\n',
        env={**os.environ, "FAKE_NVML_STATE": str(state)},
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert [read_sweep(line).sweep for line in done.stdout.splitlines()] == [1, 2]


def test_without_a_state_it_says_what_is_missing() -> None:
    env = {name: value for name, value in os.environ.items() if name != "FAKE_NVML_STATE"}
    done = subprocess.run(
        [sys.executable, "-m", "watchtower.simulate.sampler"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert "FAKE_NVML_STATE" in done.stderr
