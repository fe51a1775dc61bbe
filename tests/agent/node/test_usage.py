"""Counters of a rank with its children: they never fall and count nothing twice."""

from pathlib import Path

from tests.agent.node.fake_proc import FakeProc
from watchtower.agent.node.proc import Proc, Stat
from watchtower.agent.node.usage import UsageCounter

TICKS = 100  # per second on Linux


def test_a_child_counts_and_keeps_counting_after_it_left(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.add(10)
    fake.add(11, parent=10)
    fake.children(10, 11)
    fake.state(10, cpu_ticks=1 * TICKS)
    fake.state(11, parent=10, cpu_ticks=5 * TICKS)
    fake.storage(11, 700, 70)
    counter = UsageCounter(Proc(fake.root), 10)
    first = counter.read(all_threads=True)
    assert (first.cpu_s, first.read_bytes, first.write_bytes) == (6.0, 700.0, 70.0)

    fake.end(11)  # waited for: its use moves into the parent's numbers, with what it did in its last moment
    fake.children(10)
    fake.state(10, cpu_ticks=2 * TICKS, waited_ticks=6 * TICKS)
    fake.storage(10, 800, 70)
    second = counter.read(all_threads=False)
    assert (second.cpu_s, second.read_bytes, second.write_bytes) == (8.0, 800.0, 70.0)


def test_a_child_that_nobody_waits_for_takes_nothing_away(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.add(10)
    fake.add(11, parent=10)
    fake.children(10, 11)
    fake.state(11, parent=10, cpu_ticks=5 * TICKS)
    counter = UsageCounter(Proc(fake.root), 10)
    assert counter.read(all_threads=True).cpu_s == 5.0
    fake.end(11)
    assert counter.read(all_threads=True).cpu_s == 5.0
    fake.state(10, cpu_ticks=1 * TICKS)
    assert counter.read(all_threads=True).cpu_s == 6.0


def test_a_pid_used_again_by_another_child_starts_from_nothing(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.add(10)
    fake.add(11, parent=10)
    fake.children(10, 11)
    fake.state(11, parent=10, cpu_ticks=500)
    counter = UsageCounter(Proc(fake.root), 10)
    counter.read(all_threads=True)
    fake.state(11, parent=10, cpu_ticks=20, start_ticks=9000)
    assert counter.read(all_threads=True).cpu_s == 5.2


def test_storage_that_may_not_be_read_is_not_zero(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.add(10)
    (fake.root / "10" / "io").write_text("nothing\n")
    used = UsageCounter(Proc(fake.root), 10).read(all_threads=True)
    assert (used.read_bytes, used.write_bytes) == (None, None)


class CountingProc(Proc):
    """Counts how many processes are looked at."""

    looks = 0

    def stat(self, pid: int) -> Stat | None:
        self.looks += 1
        return super().stat(pid)


def test_ten_thousand_children_are_not_all_looked_at(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.add(101)
    for pid in range(1000, 1300):
        fake.add(pid, parent=101)
    fake.children(101, *range(1000, 1300), *range(20_000, 28_000))
    proc = CountingProc(fake.root)
    UsageCounter(proc, 101).read(all_threads=False)
    assert proc.looks == 256
