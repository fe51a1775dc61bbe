"""Who is taken in from NVML's lists, when /proc changes under our hands."""

from pathlib import Path

from tests.agent.node.fake_proc import FakeProc, torchrun
from watchtower.agent.node.members import Members
from watchtower.agent.node.proc import Absent, Proc
from watchtower.agent.node.side import GpuProcess


class RacingProc(Proc):
    """A /proc in which the process ends, and its pid is used again, while its environment is read."""

    def __init__(self, fake: FakeProc) -> None:
        super().__init__(fake.root)
        self._fake = fake
        self._raced = False

    def environ(self, pid: int) -> dict[str, str] | Absent:
        if not self._raced:
            self._raced = True
            self._fake.end(pid)
            self._fake.add(pid, torchrun(7, run="other"), start_ticks=99_999)
        return super().environ(pid)


def test_an_environment_read_while_the_pid_changed_hands_is_nobodys(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.add(101, torchrun(3, run="first"))
    members = Members(RacingProc(fake), host="h", user_only=False)
    listed = [GpuProcess(101, "GPU-0", 10.0)]
    ended = members.refresh(listed, 0.0)
    assert [(m.key.start_ticks, m.claim.rank) for m in ended] == [(5000, None)]
    members.refresh(listed, 1.0)
    (now,) = members.resolve({}, 1.0)
    assert (now.key.start_ticks, now.claim.rank) == (99_999, 7)
