"""A made-up node with the agent's side of it, for tests that look at it once after another. Decides nothing."""

import json
import os
from pathlib import Path

from tests.agent.node.fake_proc import FakeProc
from tests.fakes.clock import FakeClock
from watchtower.agent.node.side import GpuProcess, NodeReport, NodeSettings, NodeSide

UID = os.getuid()


class Node:
    """A node with eight GPUs at most, and the agent's side of it."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder
        self.proc = FakeProc(folder)
        self.kmsg = folder / "kmsg"
        self.kmsg.touch()
        self.jobs = folder / "jobs"
        self.clock = FakeClock()
        self.side = NodeSide(
            NodeSettings(
                proc_root=self.proc.root,
                job_directory=str(self.jobs),
                kmsg_path=str(self.kmsg),
                **settings,  # type: ignore[arg-type]
            ),
            self.clock,
        )
        self.listed: list[GpuProcess] = []

    def rank(self, pid: int, environ: dict[str, str], **process: object) -> None:
        self.proc.add(pid, environ, **process)  # type: ignore[arg-type]
        self.listed.append(GpuProcess(pid, f"GPU-{len(self.listed)}", 1000.0))

    def look(self, seconds: float = 1.0) -> NodeReport:
        self.clock.advance(seconds)
        return self.side.look(self.listed)

    def say(self, line: str) -> None:
        with self.kmsg.open("a") as file:
            file.write(f"3,1,1,-;{line}\n")

    def heartbeat(self, run_id: str, rank: int, **said: object) -> None:
        folder = self.jobs / str(UID) / run_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"rank_{rank}.json").write_text(json.dumps({"run_id": run_id, "rank": rank} | said))
