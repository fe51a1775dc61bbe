"""Owed messages: in order, one at a time, never lost between two statements."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.test_lifecycle import opened, verdict
from tests.fakes.sinks import T0, a_view, an_owed
from watchtower.model import NoticeAction, Owed, RunState
from watchtower.store.database import StoreError
from watchtower.store.outbox import LONGEST_WAIT_S
from watchtower.store.records import (
    Delivery,
    Hold,
    HoldReason,
    RoundRecord,
    RowState,
    Settlement,
    Transition,
)
from watchtower.store.store import Store

TRIGGER, UPDATE, RESOLVE = NoticeAction.TRIGGER, NoticeAction.UPDATE, NoticeAction.RESOLVE
YES = Settlement(state=RowState.DELIVERED)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(tmp_path)
    yield made
    made.close()


def owe(store: Store, *owed: Owed, at: float = T0) -> None:
    store.record(RoundRecord(at=at, owed=owed))


def take(store: Store, sink: str = "slack", now: float = T0) -> Delivery:
    delivery = store.claim(sink, now)
    assert delivery is not None
    return delivery


def states(store: Store, uid: str = "0123456789abcdef") -> list[tuple[int, str]]:
    return [(row.seq, row.state.value) for row in store.deliveries(uid)]


def test_a_message_is_claimed_once_and_ticked_off_only_when_settled(store: Store) -> None:
    owe(store, an_owed())
    delivery = take(store)
    assert delivery.owed == an_owed()
    assert (delivery.attempts, delivery.ambiguous, delivery.form) == (1, 0, 0)
    assert store.claim("slack", T0) is None
    assert store.pending("slack") == 1
    store.settle(delivery, YES, T0 + 1)
    assert store.pending("slack") == 0
    assert states(store) == [(1, "delivered")]


def test_the_same_message_owed_again_is_owed_once(store: Store) -> None:
    owe(store, an_owed())
    owe(store, an_owed(), at=T0 + 5)
    assert store.pending("slack") == 1


def test_within_an_incident_a_sink_gets_its_messages_strictly_in_order(store: Store) -> None:
    owe(store, an_owed(), an_owed(action=RESOLVE, seq=2))
    first = take(store)
    assert first.owed.action is TRIGGER
    assert store.claim("slack", T0 + 900) is None
    store.settle(first, Settlement(state=RowState.PENDING, not_before=T0 + 60), T0)
    assert store.claim("slack", T0 + 30) is None
    again = take(store, now=T0 + 60)
    assert again.owed.action is TRIGGER
    assert again.attempts == 2
    store.settle(again, YES, T0 + 61)
    assert take(store, now=T0 + 61).owed.action is RESOLVE


def test_a_message_that_waits_does_not_delay_other_incidents_or_other_sinks(store: Store) -> None:
    owe(store, an_owed(), an_owed("pagerduty"), an_owed(incident_uid="other", seq=1))
    store.settle(take(store), Settlement(state=RowState.PENDING, not_before=T0 + 60), T0)
    assert take(store).owed.notice.incident_uid == "other"
    assert take(store, "pagerduty").owed.sink == "pagerduty"


def test_an_update_is_superseded_by_what_is_newer_but_trigger_and_resolve_never_are(store: Store) -> None:
    owe(store, an_owed(), an_owed(action=UPDATE, seq=2))
    owe(store, an_owed(action=UPDATE, seq=3), at=T0 + 60)
    assert states(store) == [(1, "pending"), (2, "superseded"), (3, "pending")]
    owe(store, an_owed(action=RESOLVE, seq=4), at=T0 + 120)
    assert states(store) == [(1, "pending"), (2, "superseded"), (3, "superseded"), (4, "pending")]


def test_an_update_that_fails_while_a_newer_one_arrives_is_not_tried_again(store: Store) -> None:
    owe(store, an_owed())
    store.settle(take(store), YES, T0)
    owe(store, an_owed(action=UPDATE, seq=2))
    inflight = take(store)
    owe(store, an_owed(action=UPDATE, seq=3), at=T0 + 60)
    store.settle(inflight, Settlement(state=RowState.PENDING, not_before=T0 + 60), T0 + 60)
    assert states(store) == [(1, "delivered"), (2, "superseded"), (3, "pending")]


def test_what_was_in_flight_when_the_process_died_is_tried_again_and_marked(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    owe(store, an_owed())
    take(store)
    store.close()
    again = Store.open(tmp_path)
    assert again.requeue_inflight(T0 + 30) == 1
    assert take(again, now=T0 + 30).ambiguous == 1
    again.close()


def test_a_held_sink_gets_nothing_until_the_hold_ends(store: Store) -> None:
    owe(store, an_owed(), an_owed(incident_uid="other"))
    hold = Hold(T0 + 300, HoldReason.BROKEN)
    store.settle(take(store), Settlement(state=RowState.PENDING, not_before=T0 + 1, hold=hold), T0 + 1)
    assert store.claim("slack", T0 + 299) is None
    assert store.due_in("slack", T0 + 299) == pytest.approx(1)
    (row,) = store.sinks()
    assert (row.held_until, row.hold_reason, row.waiting) == (T0 + 300, HoldReason.BROKEN, 2)
    first = take(store, now=T0 + 300)
    assert first.owed.notice.incident_uid == "other", "the probe takes turns"
    store.settle(first, YES, T0 + 300)
    assert store.sinks()[0].held_until is None


@pytest.mark.parametrize(("reason", "lifted"), [(HoldReason.BROKEN, True), (HoldReason.THROTTLED, False)])
def test_a_start_tries_a_broken_sink_at_once_but_keeps_a_silence_that_was_asked_for(
    store: Store, reason: HoldReason, lifted: bool
) -> None:
    owe(store, an_owed())
    settlement = Settlement(state=RowState.PENDING, not_before=T0, hold=Hold(T0 + 300, reason))
    store.settle(take(store), settlement, T0)
    store.requeue_inflight(T0 + 1)
    assert (store.claim("slack", T0 + 2) is not None) is lifted


def test_a_wall_clock_set_back_by_a_year_delays_nothing(store: Store) -> None:
    year = 365 * 86_400.0
    owe(store, an_owed(), at=T0 + year)
    settlement = Settlement(
        state=RowState.PENDING,
        not_before=T0 + year + 60,
        hold=Hold(T0 + year + 60, HoldReason.FAILING),
    )
    store.settle(take(store, now=T0 + year), settlement, T0 + year)
    assert store.due_in("slack", T0) == 0
    assert store.claim("slack", T0) is not None
    assert year > LONGEST_WAIT_S


def test_others_pass_is_said_only_of_what_passed_since_the_first_try(store: Store) -> None:
    owe(store, an_owed(incident_uid="before"))
    store.settle(take(store), YES, T0)
    owe(store, an_owed(), an_owed(incident_uid="other"), at=T0 + 10)
    bad = take(store, now=T0 + 10)
    assert not bad.others_pass
    store.settle(bad, Settlement(state=RowState.PENDING, not_before=T0 + 20), T0 + 10)
    store.settle(take(store, now=T0 + 11), YES, T0 + 12)
    assert take(store, now=T0 + 20).others_pass


def test_the_outbox_is_as_old_as_its_oldest_waiting_message_of_a_configured_sink(store: Store) -> None:
    assert store.outbox_age(T0) == 0
    owe(store, an_owed(), at=T0)
    owe(store, an_owed("gone", incident_uid="x"), at=T0 - 1000)
    assert store.outbox_age(T0 + 30) == pytest.approx(1030)
    assert store.outbox_age(T0 + 30, {"slack"}) == pytest.approx(30)
    store.settle(take(store), YES, T0 + 31)
    assert store.outbox_age(T0 + 60, {"slack"}) == 0


def test_nothing_waits_means_nothing_is_due(store: Store) -> None:
    assert store.due_in("slack", T0) is None
    owe(store, an_owed(), at=T0)
    assert store.due_in("slack", T0) == 0


def test_a_dead_message_is_counted_and_lets_the_next_one_pass(store: Store) -> None:
    owe(store, an_owed(), an_owed(action=RESOLVE, seq=2))
    store.settle(take(store), Settlement(state=RowState.DEAD, detail="HTTP 400"), T0)
    (row,) = store.sinks()
    assert row.dead == 1
    assert take(store).owed.action is RESOLVE


ROUND = RoundRecord(
    at=T0,
    views=(a_view(),),
    memories=(("slurm-4411", b"m"),),
    cursors=(("gpu-a", "1"),),
    transitions=(
        Transition(
            run_id="slurm-4411",
            at=T0,
            previous=None,
            verdict=verdict(RunState.DEADLOCKED, T0, run_id="slurm-4411"),
        ),
    ),
    incidents=(opened(),),
    owed=(an_owed(), an_owed("pagerduty")),
    judge_memory=b"j",
)


def whole(store: Store) -> tuple[bool, ...]:
    loaded = store.load()
    return (
        bool(loaded.views),
        bool(loaded.memories),
        bool(loaded.cursors),
        bool(loaded.incidents),
        loaded.judge_memory is not None,
        bool(store.transitions("slurm-4411")),
        store.pending("slack") == 1,
        store.pending("pagerduty") == 1,
    )


class _Failing(sqlite3.Connection):
    """Raises at the n-th statement from now; n = 0 never."""

    countdown = 0

    def _count(self) -> None:
        cls = type(self)
        if cls.countdown:
            cls.countdown -= 1
            if cls.countdown == 0:
                raise sqlite3.OperationalError("planted: disk I/O error")

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        if sql != "ROLLBACK":
            self._count()
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        self._count()
        return super().executemany(sql, parameters)


def test_a_failure_at_any_statement_of_a_round_keeps_all_of_it_or_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path, factory=_Failing)
    failures = 0
    for statement in range(1, 100):
        _Failing.countdown = statement
        try:
            store.record(ROUND)
        except StoreError:
            failures += 1
            _Failing.countdown = 0
            assert not any(whole(store)), f"statement {statement}"
        else:
            break
    _Failing.countdown = 0
    assert failures >= 10
    assert all(whole(store))
    store.close()


_KILLED = """
import os, sys, sqlite3
from pathlib import Path
from tests.store import test_outbox as t
class Dying(t._Failing):
    def _count(self):
        cls = type(self)
        if cls.countdown:
            cls.countdown -= 1
            if cls.countdown == 0:
                os._exit(9)
store = t.Store.open(Path(sys.argv[1]), factory=Dying)
store.requeue_inflight(t.T0)
Dying.countdown = int(sys.argv[2])
store.record(t.ROUND)
delivery = store.claim("slack", t.T0)
store.settle(delivery, t.YES, t.T0 + 1)
os._exit(0)
"""


@pytest.mark.parametrize("statement", [1, 2, 9, 14, 17, 19, 21, 24, 26])
def test_a_process_that_dies_at_any_statement_leaves_a_whole_round_or_none(
    tmp_path: Path, statement: int
) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path), str(statement)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 9), done.stderr
    store = Store.open(tmp_path)
    store.requeue_inflight(T0 + 10)
    kept = whole(store)
    owed_or_told = store.pending("slack") + sum(row.last_delivered_at is not None for row in store.sinks())
    store.close()
    assert not any(kept) or (all(kept[:6]) and kept[7] and owed_or_told == 1)
