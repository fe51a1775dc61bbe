"""The heartbeat: what it writes, and that nothing it meets disturbs training."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.node.fake_proc import torchrun
from watchtower.agent.node.identity import claim
from watchtower.agent.node.jobfiles import JobFolder, read_job_folder
from watchtower.train import beat, heartbeat, whoami

ROOT = Path(__file__).parents[2]
LAUNCHERS: list[dict[str, str]] = [
    torchrun(3, run="qwen"),
    torchrun(3),
    torchrun(3) | {"MASTER_ADDR": "localhost"},
    torchrun(3) | {"SLURM_JOB_ID": "4411", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
    {"SLURM_JOB_ID": "4411", "SLURM_NTASKS": "16", "SLURM_PROCID": "3", "SLURM_LOCALID": "3"},
    {"SLURM_JOB_ID": "4412", "SLURM_ARRAY_JOB_ID": "4400", "SLURM_ARRAY_TASK_ID": "7"},
    {"WATCHTOWER_RUN_ID": "mine", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"},
    {
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "8",
        "JOB_UID": "u-1",
    },
]


def run(code: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "WATCHTOWER_DIR": str(folder)} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def only_file(folder: Path) -> dict[str, Any]:
    (path,) = folder.rglob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_last_beat_of_a_short_program_is_in_the_file_that_the_agent_reads(tmp_path: Path) -> None:
    code = "from watchtower.train import beat\nfor n in range(5): beat(n, 9, loss=2.5, phase='train', blocks_left=7)"
    done = run(code, tmp_path, **torchrun(3, run="qwen", restarts=1))
    assert (done.returncode, done.stderr) == (0, "")
    said = only_file(tmp_path)
    assert {
        key: said[key]
        for key in ("run_id", "rank", "step", "total_steps", "loss", "phase", "blocks_left", "attempt")
    } == {
        "run_id": "torchrun-qwen",
        "rank": 3,
        "step": 4,
        "total_steps": 9,
        "loss": 2.5,
        "phase": "train",
        "blocks_left": 7,
        "attempt": 1,
    }
    (read,) = read_job_folder(JobFolder("/", str(tmp_path), os.getuid())).heartbeats
    assert (read.rank, read.step, read.world_size, read.local_rank) == (3, 4, 16, 3)
    assert list(tmp_path.rglob(".rank*")) == []


@pytest.mark.parametrize("value", ["object()", "float('nan')", "'a' * 10**6", "[1]", "10**400", "-1", "1j"])
def test_no_value_raises(tmp_path: Path, value: str) -> None:
    done = run(
        f"from watchtower.train import beat\nbeat(1, loss={value}, tokens={value})\nbeat({value})", tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_cannot_be_written_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run("from watchtower.train import beat\nbeat(1)", tmp_path / "file" / "below")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_disk_that_hangs_holds_no_step(tmp_path: Path) -> None:
    # The folder's place is taken by a pipe: whoever opens it to write waits for ever.
    code = f"""
import os, time
os.mkfifo({str(tmp_path / "pipe")!r})
from pathlib import Path
import watchtower.train.heartbeat as heartbeat
class Dead(Path):
    def write_text(self, *args, **kwargs):
        os.open({str(tmp_path / "pipe")!r}, os.O_WRONLY)
heartbeat._folder = lambda run_id: Dead({str(tmp_path)!r})
began = time.monotonic()
for n in range(10000):
    heartbeat.beat(n)
assert time.monotonic() - began < 2
"""
    began = time.monotonic()  # noqa: TID251 - a real process
    done = run(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 20  # noqa: TID251


def test_a_forked_child_writes_for_itself(tmp_path: Path) -> None:
    code = """
import os
from watchtower.train import beat
beat(1, rank=0)
child = os.fork()
beat(2, rank=1 if child == 0 else 0)
if child:
    os.waitpid(child, 0)
"""
    done = run(code, tmp_path)
    assert done.returncode == 0
    said = {path.name: json.loads(path.read_text()) for path in tmp_path.rglob("*.json")}
    assert {name: one["step"] for name, one in said.items()} == {"rank_0.json": 2, "rank_1.json": 2}
    assert said["rank_0.json"]["pid"] != said["rank_1.json"]["pid"]


def test_a_process_that_never_beats_starts_no_thread_and_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, threading, watchtower.train\n"
        "assert threading.active_count() == 1\n"
        "assert not {'torch', 'msgspec', 'httpx', 'numpy'} & set(sys.modules)"
    )
    done = run(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("environ", LAUNCHERS)
def test_heartbeat_and_agent_give_a_run_and_rank_the_same_name(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    seen = claim(environ, "", os.uname().nodename)
    rank, world = whoami.rank_and_world()
    assert (whoami.run_id(), rank, whoami.attempt()) == (seen.run_id, seen.rank or 0, seen.attempt)
    assert world == seen.world_size


def test_the_rate_is_worked_out_from_what_the_caller_counts() -> None:
    writer = heartbeat._Writer()
    said = [
        writer._rate({"tokens": 1000 * n, "samples": None, "at": float(n), "throughput_scope": None})
        for n in (0, 1, 10, 20)
    ]
    assert said[:2] == [{}, {}]
    assert said[3] == {"throughput": 1000.0, "throughput_unit": "tokens/s", "throughput_scope": "run"}
    assert writer._rate({"tokens": 5, "samples": None, "at": 30.0, "throughput_scope": None}) == {}


def test_a_run_id_that_is_no_name_does_not_leave_the_folder(tmp_path: Path) -> None:
    run(
        "from watchtower.train import beat\nbeat(1, run_id='../elsewhere')",
        tmp_path / "beats",
        WATCHTOWER_RUN_ID="mine",
    )
    assert [path.parent.name for path in tmp_path.rglob("*.json")] == ["mine"]


def test_a_beat_costs_far_less_than_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHTOWER_DIR", str(tmp_path))
    began = time.perf_counter()
    for step in range(2000):
        beat(step)
    assert (time.perf_counter() - began) / 2000 < 200e-6  # bench/heartbeat.py measures it properly
