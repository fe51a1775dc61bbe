import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from watchtower import wire
from watchtower.agent.history import History, Reading

GPU = wire.Gpu("GPU-a", 0, state="ok")


def history(clock: FakeClock, life: str = "life1", keep_s: float = 600.0) -> History:
    return History(
        "gpu-a",
        wire.AgentInfo("0.1.0"),
        clock,
        nvml=wire.Nvml,
        gpus=lambda: (GPU,),
        keep_s=keep_s,
        life=life,
    )


def sample(kept: History, power_w: float) -> None:
    kept.add_readings([Reading("GPU-a", power_w, 100.0, 41.0, 1785.0, 231_004.0)])


def powers(snapshot: wire.Snapshot) -> list[float | None]:
    return [s[1] for s in snapshot.gpus[0].samples]


def test_samples_come_oldest_first_with_their_age() -> None:
    clock = FakeClock()
    kept = history(clock)
    for power_w in (900.0, 901.0, 902.0):
        sample(kept, power_w)
        clock.advance(1)
    snapshot = kept.snapshot(None)
    assert snapshot.gpus[0].samples == [
        (3.0, 900.0, 100.0, 41.0, 1785.0, 231_004.0),
        (2.0, 901.0, 100.0, 41.0, 1785.0, 231_004.0),
        (1.0, 902.0, 100.0, 41.0, 1785.0, 231_004.0),
    ]
    assert snapshot.taken_at == clock.now()


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=20))
def test_polls_at_any_moments_get_each_sample_exactly_once(polls: list[tuple[int, bool]]) -> None:
    clock = FakeClock()
    kept = history(clock)
    written = 0
    seen: list[float | None] = []
    cursor: str | None = None
    for count, ask in [*polls, (0, True)]:
        for _ in range(count):
            sample(kept, float(written))
            written += 1
            clock.advance(0.5)
        if ask:
            snapshot = kept.snapshot(cursor)
            seen += powers(snapshot)
            cursor = snapshot.cursor
    assert seen == [float(n) for n in range(written)]


def test_a_cursor_of_an_earlier_life_gets_everything_kept() -> None:
    clock = FakeClock()
    earlier = history(clock, "life1")
    for _ in range(5):
        sample(earlier, 1.0)
    cursor = earlier.snapshot(None).cursor
    later = history(clock, "life2")
    sample(later, 2.0)
    assert powers(later.snapshot(cursor)) == [2.0]


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "life1-", "life1--1", "life1-99999", "life1-1e9", "life1-²", "life1-" + "9" * 5000, "-1"],
)
def test_a_cursor_that_means_nothing_gets_everything_kept(cursor: str) -> None:
    kept = history(FakeClock())
    sample(kept, 900.0)
    assert powers(kept.snapshot(cursor)) == [900.0]


def test_after_ten_minutes_things_are_forgotten_and_not_before() -> None:
    clock = FakeClock()
    kept = history(clock)
    sample(kept, 900.0)
    kept.add_happenings(events=[wire.Event(clock.now(), "xid")])
    clock.advance(600)
    assert powers(kept.snapshot(None)) == [900.0]
    assert len(kept.snapshot(None).events) == 1
    clock.advance(0.5)
    assert powers(kept.snapshot(None)) == []
    assert kept.snapshot(None).events == ()


def test_happenings_are_told_once_per_cursor_in_order() -> None:
    clock = FakeClock()
    kept = history(clock)
    kept.add_happenings(
        exits=[wire.Exit("r", 1, clock.now())], progress=[wire.Progress("r", clock.now(), step=1)]
    )
    first = kept.snapshot(None)
    kept.add_happenings(progress=[wire.Progress("r", clock.now(), step=n) for n in (2, 3)])
    second = kept.snapshot(first.cursor)
    assert ([e.pid for e in first.exits], [p.step for p in first.progress]) == ([1], [1])
    assert (second.exits, [p.step for p in second.progress]) == ((), [2, 3])
    assert kept.snapshot(second.cursor).progress == ()


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_stepped_wall_clock_changes_no_age(step_s: float) -> None:
    clock = FakeClock()
    kept = history(clock)
    sample(kept, 900.0)
    kept.add_happenings(exits=[wire.Exit("r", 1, clock.now() - 5)])
    clock.step_wall(step_s)
    clock.advance(10)
    snapshot = kept.snapshot(None)
    assert snapshot.gpus[0].samples[0][0] == 10
    assert snapshot.taken_at - snapshot.exits[0].at == pytest.approx(15)


def test_a_job_that_floods_us_does_not_fill_the_memory() -> None:
    clock = FakeClock()
    kept = history(clock)
    kept.add_happenings(progress=[wire.Progress("r", clock.now(), step=n) for n in range(20_000)])
    steps = [p.step for p in kept.snapshot(None).progress]
    assert (len(steps), steps[-1]) == (5000, 19_999)


def test_a_reading_that_is_not_known_is_null_on_the_wire_and_never_zero() -> None:
    kept = history(FakeClock())
    kept.add_readings([Reading("GPU-a", None, None, None, None, None)])
    body = json.loads(wire.encode(kept.snapshot(None)))
    assert body["gpus"][0]["samples"] == [[0.0, None, None, None, None, None]]
    assert wire.decode(wire.encode(kept.snapshot(None))) == kept.snapshot(None)
