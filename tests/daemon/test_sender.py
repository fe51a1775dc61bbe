"""Delivery as the outbox and the sinks see it: nothing lost, in order, and one sick sink is nobody else's trouble."""

import asyncio
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.fakes.sinks import T0, FakeSink, an_owed
from watchtower.daemon.sender import BACKOFF_CAP_S, PROBE_S, Sender, Sent, settle
from watchtower.model import NoticeAction, Owed
from watchtower.notify.sink import Form, Outcome, OutcomeKind
from watchtower.store.database import StoreError
from watchtower.store.records import Delivery, HoldReason, RoundRecord, RowState
from watchtower.store.store import Store

P = ParamSpec("P")
R = TypeVar("R")
UID = "0123456789abcdef"
RETRY, AMBIGUOUS, BROKEN, REJECTED = (
    OutcomeKind.RETRY,
    OutcomeKind.AMBIGUOUS,
    OutcomeKind.BROKEN,
    OutcomeKind.REJECTED,
)


async def inline(call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    return call(*args, **kwargs)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(tmp_path)
    yield made
    made.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(T0)


def owe(store: Store, *owed: Owed, at: float = T0) -> None:
    store.record(RoundRecord(at=at, owed=owed))


def build(store: Store, clock: FakeClock, *sinks: FakeSink, seen: list[Sent] | None = None) -> Sender:
    return Sender(
        sinks,
        store,
        run_in_store=inline,
        clock=clock,
        random=lambda: 0.5,
        observe=None if seen is None else seen.append,
    )


async def drive(
    sender: Sender,
    clock: FakeClock,
    *,
    until: Callable[[], bool],
    step_s: float = 0.05,
    within_s: float = 7200,
) -> float:
    """Run the sender until something holds; gives the virtual seconds that took."""
    began = clock.monotonic()
    running = asyncio.create_task(sender.run())
    try:
        while not until():
            assert clock.monotonic() - began < within_s, "it did not happen"
            await clock.sleep(step_s)
            if running.done():
                await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return clock.monotonic() - began


def delivered(store: Store, sink: str = "slack", uid: str = UID) -> Callable[[], bool]:
    return lambda: all(row.ended_at is not None for row in store.deliveries(uid) if row.sink == sink)


async def test_what_is_owed_is_told_once_and_ticked_off(store: Store, clock: FakeClock) -> None:
    sink, seen = FakeSink(), list[Sent]()
    owe(store, an_owed())
    took = await drive(build(store, clock, sink, seen=seen), clock, until=delivered(store))
    assert took < 1
    assert sink.taken == [(UID, 1, NoticeAction.TRIGGER, Form.RICH)]
    assert [(s.sink, s.action, s.outcome) for s in seen] == [("slack", "trigger", OutcomeKind.DELIVERED)]


async def test_a_new_row_goes_out_at_once_when_the_sender_is_woken(store: Store, clock: FakeClock) -> None:
    sink = FakeSink()
    sender = build(store, clock, sink)
    running = asyncio.create_task(sender.run())
    await clock.sleep(100)
    owed_at = clock.now()
    owe(store, an_owed(), at=owed_at)
    sender.wake()
    await clock.sleep(0.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sink.taken
    assert sink.tried_at[0] - owed_at < 0.5


async def test_a_row_that_nobody_announced_goes_out_soon_all_the_same(store: Store, clock: FakeClock) -> None:
    sink = FakeSink()
    sender = build(store, clock, sink)
    running = asyncio.create_task(sender.run())
    await clock.sleep(1)
    owe(store, an_owed(), at=clock.now())
    await clock.sleep(20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sink.taken


async def test_every_bad_day_ends_in_delivery(store: Store, clock: FakeClock) -> None:
    sink = FakeSink(script=[RETRY, AMBIGUOUS, BROKEN, ValueError("planted"), RETRY, REJECTED])
    owe(store, an_owed())
    await drive(build(store, clock, sink), clock, until=delivered(store))
    assert len(sink.taken) == 1


async def test_trigger_and_resolve_arrive_in_order_through_an_outage(store: Store, clock: FakeClock) -> None:
    sink = FakeSink(script=[RETRY] * 7)
    owe(store, an_owed(), an_owed(action=NoticeAction.RESOLVE, seq=2))
    await drive(build(store, clock, sink), clock, until=delivered(store))
    assert [action for _, _, action, _ in sink.taken] == [NoticeAction.TRIGGER, NoticeAction.RESOLVE]


async def test_a_sink_that_is_down_is_tried_ever_more_rarely_and_not_once_per_message(
    store: Store, clock: FakeClock
) -> None:
    sink = FakeSink()
    sink.always = Outcome(RETRY)
    owe(store, *(an_owed(incident_uid=f"i{n}") for n in range(50)))
    began = clock.now()
    await drive(build(store, clock, sink), clock, until=lambda: clock.now() - began > 3600, step_s=5)
    gaps = [b - a for a, b in zip(sink.tried_at, sink.tried_at[1:], strict=False)]
    assert len(sink.tried) < 100
    assert gaps[0] < gaps[3] < gaps[6]
    assert max(gaps) <= BACKOFF_CAP_S + 1
    assert len({uid for uid, *_ in sink.tried[:20]}) == 20, "the messages take turns"


async def test_a_hanging_sink_never_delays_another(store: Store, clock: FakeClock) -> None:
    stuck, well = FakeSink("stuck", hang=asyncio.Event()), FakeSink("well")
    owe(store, an_owed("stuck"), an_owed("well"))
    took = await drive(build(store, clock, stuck, well), clock, until=delivered(store, "well"))
    assert took < 1
    assert len(stuck.tried) == 1


async def test_silence_that_a_provider_asks_for_is_kept_for_every_message(
    store: Store, clock: FakeClock
) -> None:
    sink = FakeSink(script=[Outcome(RETRY, "HTTP 429", 120.0)])
    owe(store, an_owed(), an_owed(incident_uid="other"))
    await drive(build(store, clock, sink), clock, until=lambda: len(sink.taken) == 2)
    assert sink.tried_at[1] - sink.tried_at[0] >= 120


async def test_a_silence_that_was_asked_for_outlives_a_restart(store: Store, clock: FakeClock) -> None:
    sink = FakeSink(script=[Outcome(RETRY, "HTTP 429", 120.0)])
    owe(store, an_owed())
    await drive(
        build(store, clock, sink),
        clock,
        until=lambda: len(sink.tried) == 1 and store.sinks()[0].held_until is not None,
    )
    store.requeue_inflight(clock.now())
    await drive(build(store, clock, sink), clock, until=delivered(store))
    assert sink.tried_at[1] - sink.tried_at[0] >= 120


async def test_a_broken_sink_is_probed_every_five_minutes_and_keeps_everything(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FakeSink(script=[BROKEN] * 4)
    owe(store, *(an_owed(incident_uid=f"i{n}") for n in range(3)))
    with caplog.at_level(logging.WARNING):
        await drive(build(store, clock, sink), clock, until=lambda: len(sink.taken) == 3, step_s=1)
    probes = [b - a for a, b in zip(sink.tried_at[:5], sink.tried_at[1:5], strict=False)]
    assert all(PROBE_S <= gap < PROBE_S + 2 for gap in probes)
    assert [r.message.split()[0] for r in caplog.records] == ["sink_fails", "sink_well_again"]


async def test_a_rejected_payload_walks_down_the_forms_at_once(store: Store, clock: FakeClock) -> None:
    sink = FakeSink(script=[REJECTED, REJECTED])
    owe(store, an_owed())
    took = await drive(build(store, clock, sink), clock, until=delivered(store))
    assert [form for _, _, form, _ in sink.tried] == [Form.RICH, Form.PLAIN, Form.MINIMAL]
    assert took < 5


async def test_a_bug_in_rendering_costs_a_form_and_not_the_message(store: Store, clock: FakeClock) -> None:
    sink = FakeSink()
    sink.render_fails_at = Form.RICH
    owe(store, an_owed())
    await drive(build(store, clock, sink), clock, until=delivered(store))
    assert sink.taken == [(UID, 1, NoticeAction.TRIGGER, Form.PLAIN)]


class _Picky(FakeSink):
    """Refuses one incident in every form."""

    refuses = "poison"

    async def send(self, body: bytes, key: str) -> Outcome:
        if self.refuses.encode() in body:
            self.tried.append((self.refuses, 0, Form.RICH, False))
            return Outcome(REJECTED, "HTTP 400")
        return await super().send(body, key)


async def test_one_poisoned_message_delays_nobody_and_dies_only_after_others_passed(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = _Picky()
    owe(store, an_owed(incident_uid="poison"), *(an_owed(incident_uid=f"i{n}") for n in range(20)))
    took = await drive(build(store, clock, sink), clock, until=lambda: len(sink.taken) == 20)
    assert took < 5
    await drive(build(store, clock, sink), clock, until=delivered(store, uid="poison"))
    (row,) = store.deliveries("poison")
    assert row.state is RowState.DEAD
    assert "message_dead" in caplog.text


async def test_a_sink_that_refuses_everything_makes_no_message_dead(store: Store, clock: FakeClock) -> None:
    sink = FakeSink()
    sink.always = Outcome(REJECTED, "HTTP 400")
    owe(store, *(an_owed(incident_uid=f"i{n}") for n in range(3)))
    began = clock.now()
    await drive(build(store, clock, sink), clock, until=lambda: clock.now() - began > 3600, step_s=5)
    sink.always = None
    await drive(build(store, clock, sink), clock, until=lambda: len(sink.taken) == 3)
    assert store.sinks()[0].dead == 0


async def test_a_try_that_may_have_arrived_makes_the_next_one_say_so(store: Store, clock: FakeClock) -> None:
    sink = FakeSink(script=[RETRY, AMBIGUOUS])
    owe(store, an_owed())
    await drive(build(store, clock, sink), clock, until=delivered(store))
    assert [repeat for *_, repeat in sink.tried] == [False, False, True]


async def test_two_messages_to_one_sink_keep_the_provider_s_distance(store: Store, clock: FakeClock) -> None:
    sink = FakeSink(spacing_s=1.0)
    owe(store, *(an_owed(incident_uid=f"i{n}") for n in range(5)))
    await drive(build(store, clock, sink), clock, until=lambda: len(sink.taken) == 5)
    assert all(b - a > 0.999 for a, b in zip(sink.tried_at, sink.tried_at[1:], strict=False))


async def test_a_wall_clock_that_is_set_back_or_forward_loses_and_delays_nothing(
    store: Store, clock: FakeClock
) -> None:
    for shift in (-3600.0, -31_536_000.0, 3600.0):
        uid = f"shift{shift}"
        sink = FakeSink(script=[RETRY])
        owe(store, an_owed(incident_uid=uid), at=clock.now())
        sender = build(store, clock, sink)
        await drive(sender, clock, until=lambda sink=sink: len(sink.tried) == 1)  # type: ignore[misc]
        clock.step_wall(shift)
        assert await drive(build(store, clock, sink), clock, until=delivered(store, uid=uid)) < 120


async def test_alive_is_true_while_a_sink_only_fails_and_false_when_a_worker_is_stuck(
    store: Store, clock: FakeClock
) -> None:
    sick = FakeSink("sick")
    sick.always = Outcome(BROKEN)
    owe(store, an_owed("sick"))
    sender = build(store, clock, sick)
    began = clock.now()
    await drive(sender, clock, until=lambda: clock.now() - began > 600 and sender.alive())

    stuck = FakeSink("stuck", hang=asyncio.Event())
    owe(store, an_owed("stuck"), at=clock.now())
    other = build(store, clock, stuck)
    assert await drive(other, clock, until=lambda: not other.alive()) >= 60


async def test_a_store_that_fails_ends_the_sender_and_loses_nothing(store: Store, clock: FakeClock) -> None:
    sink = FakeSink()
    owe(store, an_owed())

    def full(*_: object) -> None:
        raise StoreError("cannot write: disk full")

    class Full:
        claim = store.claim
        due_in = store.due_in
        settle = staticmethod(full)

    sender = Sender([sink], Full(), run_in_store=inline, clock=clock, random=lambda: 0.5)
    with pytest.RaisesGroup(StoreError):
        await sender.run()
    assert store.requeue_inflight(clock.now()) == 1
    await drive(build(store, clock, sink), clock, until=delivered(store))
    assert [repeat for *_, repeat in sink.tried] == [False, True]


def a_delivery(**changes: int | bool) -> Delivery:
    fields: dict[str, int | bool] = {
        "form": 0,
        "attempts": 1,
        "ambiguous": 0,
        "others_pass": False,
        **changes,
    }
    return Delivery(id=1, sink="slack", owed=an_owed(), created_at=T0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("failures", "least", "most"), [(1, 0.5, 1), (3, 2, 4), (7, 30, 60), (500, 30, 60)])
def test_the_back_off_doubles_up_to_a_minute_and_never_gives_up(
    failures: int, least: float, most: float
) -> None:
    for chance, wanted in ((0.0, least), (1.0, most)):
        settled = settle(
            a_delivery(),
            Outcome(RETRY),
            now=T0,
            failures=failures,
            random=lambda chance=chance: chance,  # type: ignore[misc]
        )
        assert settled.state is RowState.PENDING
        assert settled.hold is not None
        assert settled.hold.until == pytest.approx(T0 + wanted)
        assert settled.hold.reason is HoldReason.FAILING


@pytest.mark.parametrize(
    ("attempts", "others_pass", "form"), [(1, True, 0), (3, False, 0), (3, True, 1), (9, False, 0)]
)
def test_a_payload_that_upsets_the_provider_alone_is_made_simpler(
    attempts: int, others_pass: bool, form: int
) -> None:
    delivery = a_delivery(attempts=attempts, others_pass=others_pass)
    settled = settle(delivery, Outcome(AMBIGUOUS), now=T0, failures=1, random=lambda: 0.5)
    assert settled.form == form
    assert settled.ambiguous


@pytest.mark.parametrize("kind", [RETRY, AMBIGUOUS, BROKEN, REJECTED])
def test_nothing_but_a_definite_yes_is_delivered(kind: OutcomeKind) -> None:
    for form in Form:
        settled = settle(a_delivery(form=form), Outcome(kind), now=T0, failures=1, random=lambda: 0.5)
        assert settled.state is RowState.PENDING


STRETCH = st.tuples(st.sampled_from([RETRY, AMBIGUOUS, BROKEN, REJECTED]), st.integers(1, 6))


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.lists(STRETCH, max_size=5), st.lists(st.integers(2, 5), min_size=1, max_size=4))
async def test_whatever_goes_wrong_for_a_while_every_incident_ends_told_in_order(
    faults: list[tuple[OutcomeKind, int]], lengths: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, clock = Store.open(Path(folder)), FakeClock(T0)
        sink = FakeSink(script=[kind for kind, times in faults for _ in range(times)])
        for number, length in enumerate(lengths):
            middle = [NoticeAction.UPDATE] * (length - 2)
            actions = [NoticeAction.TRIGGER, *middle, NoticeAction.RESOLVE]
            owe(
                store,
                *(an_owed(action=a, seq=s, incident_uid=f"i{number}") for s, a in enumerate(actions, 1)),
            )
        await drive(build(store, clock, sink), clock, until=lambda: store.pending("slack") == 0, step_s=5)
        for number, length in enumerate(lengths):
            told = [seq for uid, seq, *_ in sink.taken if uid == f"i{number}"]
            dead = [row.seq for row in store.deliveries(f"i{number}") if row.state is RowState.DEAD]
            assert told == sorted(set(told))
            assert {1, length} <= {*told, *dead}
        store.close()
