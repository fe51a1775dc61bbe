"""What one round does, in which order, and what it leaves behind when it cannot."""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from tests.fakes.clock import FakeClock
from tests.fakes.reads import incident
from tests.fakes.views import run_view
from watchtower.daemon.round import Rounds
from watchtower.daemon.store_thread import StoreThread
from watchtower.judge.settings import JudgeSettings
from watchtower.judge.step import Judge, JudgeStep
from watchtower.metrics import Metrics
from watchtower.model import Incident, Notice, NoticeAction, Observation, Owed, PollFailure
from watchtower.store.database import StoreError
from watchtower.store.records import RoundRecord
from watchtower.store.store import Store


class ScriptedJudge(Judge):
    """Says what it is told to say, and remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__(JudgeSettings())
        self.shown: list[list[Observation]] = []
        self.nows: list[float] = []
        self.next: JudgeStep | None = None
        self.taken_on: list[Incident] = []

    def step(self, observations: Sequence[Observation], now: float) -> JudgeStep:
        self.shown.append(list(observations))
        self.nows.append(now)
        step, self.next = self.next, None
        return step or JudgeStep(at=now)

    def memories(self) -> tuple[tuple[str, bytes], ...]:
        return (("slurm-4411", b"learned"),)

    def acknowledged(self, incident: Incident) -> None:
        self.taken_on.append(incident)


class FakePolls:
    def __init__(self) -> None:
        self.waiting: list[Observation] = []

    def take(self) -> list[Observation]:
        taken, self.waiting = self.waiting, []
        return taken

    def cursors(self) -> tuple[tuple[str, str], ...]:
        return (("gpu-a", "7"),)


class FakeSender:
    """Notes how much was owed in the store whenever it is woken."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.pending_when_woken: list[int] = []
        self.living = True

    def wake(self) -> None:
        self.pending_when_woken.append(self._store.pending("slack"))

    def alive(self) -> bool:
        return self.living


class BreakingStore(Store):
    """Refuses to write once told so, as a full disk does."""

    broken = False

    def record(self, round_record: RoundRecord) -> None:
        if self.broken:
            raise StoreError("cannot write watchtower.db: disk full")
        super().record(round_record)


class Bench:
    """One driver on a real store, with everything around it under control."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.store = BreakingStore(Store.open(folder)._db)
        self.judge = ScriptedJudge()
        self.polls = FakePolls()
        self.sender = FakeSender(self.store)
        self.metrics = Metrics(CollectorRegistry(), version="0", instance="test")
        self.in_store = StoreThread()
        self.rounds = Rounds(
            judge=self.judge,
            store=self.store,
            in_store=self.in_store,
            metrics=self.metrics,
            clock=self.clock,
            polls=self.polls,
            sender=self.sender,
            interval_s=5.0,
            sinks=("slack",),
        )

    def close(self) -> None:
        self.in_store.close()
        self.store.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def heard(listener: socket.socket) -> list[str]:
    said = []
    while True:
        try:
            said.append(listener.recv(4096).decode())
        except BlockingIOError:
            return said


def owing(now: float) -> JudgeStep:
    told = incident()
    notice = Notice(
        incident_uid=told.uid,
        seq=1,
        action=NoticeAction.TRIGGER,
        severity=told.severity,
        state=told.state,
        at=now,
        since=told.since,
        subject=told.subject,
        run_id=told.run_id,
        dedup_key=told.dedup_key,
        reason=told.reason,
    )
    return JudgeStep(
        at=now,
        views=(run_view(),),
        incidents=(told,),
        notices=(notice,),
        owed=(Owed(sink="slack", action=NoticeAction.TRIGGER, notice=notice),),
    )


async def test_what_is_owed_is_stored_before_the_sender_is_woken(bench: Bench) -> None:
    bench.judge.next = owing(bench.clock.now())
    await bench.rounds.run()
    assert bench.sender.pending_when_woken == [1]
    assert [one.incident.uid for one in bench.rounds.open_incidents] == ["01J"]
    assert bench.rounds.views == (run_view(),)
    await bench.rounds.run()
    assert bench.sender.pending_when_woken == [1]


async def test_a_round_that_cannot_be_written_tells_nobody_and_is_raised(
    bench: Bench, systemd: socket.socket
) -> None:
    bench.store.broken = True
    bench.judge.next = owing(bench.clock.now())
    with pytest.raises(StoreError):
        await bench.rounds.run()
    assert bench.sender.pending_when_woken == []
    assert bench.rounds.last_at is None
    assert heard(systemd) == []
    assert bench.rounds.idle.is_set()


async def test_systemd_hears_of_full_rounds_with_a_live_sender_alone(
    bench: Bench, systemd: socket.socket
) -> None:
    await bench.rounds.run()
    assert heard(systemd) == ["WATCHDOG=1"]
    bench.sender.living = False
    await bench.rounds.run()
    assert heard(systemd) == []


async def test_memories_and_cursors_are_kept_together_every_thirty_seconds(bench: Bench) -> None:
    cursors = []
    for _ in range(14):
        await bench.rounds.run()
        loaded = bench.store.load()
        cursors.append((loaded.cursors.get("gpu-a"), loaded.memories.get("slurm-4411")))
        with bench.store._db.transaction() as write:
            write.execute("DELETE FROM cursor")
            write.execute("UPDATE run SET memory = NULL")
        bench.clock.advance(5.0)
    kept = [number for number, pair in enumerate(cursors) if pair == ("7", b"learned")]
    assert kept == [0, 6, 12]
    assert all(pair == (None, None) for number, pair in enumerate(cursors) if number not in kept)


async def test_an_observation_from_ahead_of_the_clock_is_never_judged_before_it_was_made(
    bench: Bench,
) -> None:
    ahead = bench.clock.now() + 3
    bench.polls.waiting = [Observation(ahead, "gpu-a", failed=PollFailure.TIMEOUT)]
    await bench.rounds.run()
    assert bench.judge.nows == [ahead]
    assert len(bench.judge.shown[0]) == 1


@pytest.mark.parametrize(("gap_s", "late"), [(15.0, 0), (15.1, 1), (3600.0, 1)])
async def test_lost_time_is_said_and_counted(
    bench: Bench, caplog: pytest.LogCaptureFixture, gap_s: float, late: int
) -> None:
    await bench.rounds.run()
    bench.clock.advance(gap_s)
    await bench.rounds.run()
    said = [record.getMessage().split()[0] for record in caplog.records]
    assert said.count("round_late") == late
    assert f"watchtower_rounds_late_total {late}.0" in bench.metrics.expose().decode()


async def test_a_wall_clock_set_back_is_said(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.rounds.run()
    bench.clock.advance(5.0)
    bench.clock.step_wall(-3600.0)
    await bench.rounds.run()
    assert "clock_stepped by_s=-3600.0" in caplog.text


async def test_rounds_are_stale_after_three_intervals_also_before_the_first(bench: Bench) -> None:
    bench.clock.advance(15.0)
    assert bench.rounds.stale_s() is None
    bench.clock.advance(0.1)
    assert bench.rounds.stale_s() == pytest.approx(15.1)
    await bench.rounds.run()
    assert bench.rounds.stale_s() is None
