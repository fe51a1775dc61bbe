"""A /proc made of plain files, with as much in it as the agent reads. Knows nothing of the agent."""

import os
import shutil
from pathlib import Path


class FakeProc:
    """Processes that a test adds, changes and ends."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "proc"
        self.root.mkdir(parents=True)
        (self.root / "stat").write_text("cpu 0 0\nbtime 1764530000\n")

    def add(
        self,
        pid: int,
        environ: dict[str, str] | None = None,
        *,
        parent: int = 1,
        cgroup: str = "0::/",
        uid: int | None = None,
        start_ticks: int = 5000,
        inner_pid: int | None = None,
    ) -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "fdinfo").mkdir()
        (folder / "task" / str(pid)).mkdir(parents=True)
        (folder / "root").symlink_to("/")
        owner = os.getuid() if uid is None else uid
        inner = f"{pid} {inner_pid}" if inner_pid else str(pid)
        (folder / "status").write_text(
            f"Name:\tpython\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\nNSpid:\t{inner}\n"
        )
        (folder / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in (environ or {}).items()))
        (folder / "cgroup").write_text(cgroup + "\n")
        self.state(pid, parent=parent, start_ticks=start_ticks)
        self.storage(pid, 0, 0)
        self.children(pid)

    def state(
        self,
        pid: int,
        state: str = "R",
        *,
        parent: int = 1,
        start_ticks: int = 5000,
        cpu_ticks: int = 0,
        waited_ticks: int = 0,
        wait_status: int = 0,
    ) -> None:
        fields = ["0"] * 52
        fields[2], fields[3] = state, str(parent)
        fields[13], fields[15] = str(cpu_ticks), str(waited_ticks)
        fields[21], fields[51] = str(start_ticks), str(wait_status)
        fields[0], fields[1] = str(pid), "(a name) with ) brackets)"
        (self.root / str(pid) / "stat").write_text(" ".join(fields) + "\n")

    def storage(self, pid: int, read: int, written: int) -> None:
        (self.root / str(pid) / "io").write_text(
            f"rchar: 1\nread_bytes: {read}\nwrite_bytes: {written}\ncancelled_write_bytes: 0\n"
        )

    def children(self, pid: int, *children: int) -> None:
        (self.root / str(pid) / "task" / str(pid) / "children").write_text(" ".join(map(str, children)))

    def opens(
        self, pid: int, number: int, path: Path | str, *, flags: str = "0100001", mount: int = 31
    ) -> None:
        link = self.root / str(pid) / "fd" / str(number)
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        (self.root / str(pid) / "fdinfo" / str(number)).write_text(
            f"pos:\t0\nflags:\t{flags}\nmnt_id:\t{mount}\n"
        )

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))


def torchrun(
    rank: int, *, local: int | None = None, world: int = 16, run: str = "none", restarts: int = 0
) -> dict[str, str]:
    """What torchrun gives a worker."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % 8 if local is None else local),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": "8",
        "GROUP_RANK": str(rank // 8),
        "MASTER_ADDR": "node-a",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "AWS_SECRET_ACCESS_KEY": "hunter2",
    }
