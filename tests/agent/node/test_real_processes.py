"""Real processes on this machine's own /proc: environment, logs held open, heartbeats, exits."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from watchtower.agent.node.side import GpuProcess, NodeReport, NodeSettings, NodeSide
from watchtower.clock import SystemClock

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")

ROOT = Path(__file__).parents[3]
RANK = """
import sys
for line in sys.stdin:
    if line.startswith("exit"):
        raise SystemExit(int(line.split()[1]))
    if line.startswith("beat"):
        from watchtower.train import beat
        beat(int(line.split()[1]), 100)
        continue
    print(line, end="", flush=True)
"""


class Ranks:
    """Rank processes that do what they are told on standard input, and the agent's side that looks at them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.side = NodeSide(
            NodeSettings(job_directory=str(folder / "jobs"), kmsg_path=str(folder / "none")), SystemClock()
        )
        self.reports: list[NodeReport] = []

    def start(self, rank: int) -> subprocess.Popen[bytes]:
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "node-a",
            "MASTER_PORT": "29500",
            "WATCHTOWER_DIR": str(self.folder / "beats"),
            "MY_PASSWORD": "hunter2",
        }
        with (self.folder / f"{rank}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=log, stderr=log, env=environ
            )
        self.processes.append(process)
        return process

    def tell(self, rank: int, line: str) -> None:
        pipe = self.processes[rank].stdin
        assert pipe is not None
        pipe.write(line.encode() + b"\n")
        pipe.flush()

    def look_until(self, seen: Callable[[NodeReport], bool]) -> NodeReport:
        deadline = time.monotonic() + 20  # noqa: TID251 - real processes take real time
        while time.monotonic() < deadline:  # noqa: TID251
            listed = [GpuProcess(p.pid, f"GPU-{n}", 100.0) for n, p in enumerate(self.processes)]
            report = self.side.look(listed)
            self.reports.append(report)
            if seen(report):
                return report
            SystemClock().pause(0.05)
        raise AssertionError(f"not seen; last report {self.reports[-1]}")


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
    made.side.close()


def test_a_real_rank_is_found_with_its_log_its_heartbeat_and_its_exit_code(ranks: Ranks) -> None:
    ranks.start(0)
    ranks.start(1)
    report = ranks.look_until(lambda r: sorted(x.rank for x in r.ranks if x.rank is not None) == [0, 1])
    assert {(r.run_id, r.world_size, r.rank_source) for r in report.ranks} == {("node-a:29500", 2, "environ")}
    assert all(r.started_at and r.started_at <= time.time() for r in report.ranks)  # noqa: TID251
    ranks.look_until(lambda _: ranks.side._logs._entries != {})

    ranks.tell(1, "step 41/100 loss 2.0")
    said = ranks.look_until(lambda r: bool(r.progress)).progress[0]
    assert (said.rank, said.step, said.total_steps) == (1, 41, 100)

    ranks.tell(0, "beat 42")
    said = ranks.look_until(lambda r: bool(r.progress)).progress[0]
    assert (said.rank, said.step, said.total_steps) == (0, 42, 100)

    ranks.tell(1, "exit 7")
    ended = ranks.look_until(lambda r: bool(r.exits)).exits[0]
    assert (ended.rank, ended.exit_code, ended.signal) == (1, 7, None)
    ranks.processes[0].kill()
    ended = ranks.look_until(lambda r: bool(r.exits)).exits[0]
    assert (ended.rank, ended.exit_code, ended.signal) == (0, None, 9)
    assert "hunter2" not in repr(ranks.reports)
