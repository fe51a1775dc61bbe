"""What goes into the store and what comes out of it, as frozen values. Knows no SQL."""

from enum import StrEnum

import msgspec

from watchtower.model import Incident, NoticeAction, Owed, RunState, RunView, Verdict


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A run's verdict changed its state, or its suspects; `previous` is None for the first."""

    run_id: str
    at: float
    previous: RunState | None
    verdict: Verdict


class RoundRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one round has to keep, written in one transaction or not at all.

    Args:
        at: the round's moment, Unix seconds.
        views: runs as they are now; also their samples for the history.
        memories: (run_id, tracker state) of the runs whose tracker changed.
        forgotten: runs that are no longer watched; their last view stays readable.
        cursors: (node, cursor) to hand to the agents next time.
        transitions: verdicts that changed.
        incidents: that changed, resolved ones included.
        owed: the messages that these changes owe.
        judge_memory: what the judge keeps beside its runs; None leaves it as it was.
    """

    at: float
    views: tuple[RunView, ...] = ()
    memories: tuple[tuple[str, bytes], ...] = ()
    forgotten: tuple[str, ...] = ()
    cursors: tuple[tuple[str, str], ...] = ()
    transitions: tuple[Transition, ...] = ()
    incidents: tuple[Incident, ...] = ()
    owed: tuple[Owed, ...] = ()
    judge_memory: bytes | None = None


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a fresh process needs to go on where the last one stopped; forgotten runs and resolved incidents are left out."""

    views: tuple[RunView, ...]
    memories: dict[str, bytes]
    cursors: dict[str, str]
    incidents: tuple[Incident, ...]
    judge_memory: bytes | None


class NumberedIncident(msgspec.Struct, frozen=True):
    """An incident and the small number by which people call it."""

    id: int
    incident: Incident


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One claimed row of the outbox: from here until it is settled, nobody else is given it.

    Args:
        form: how rich the next try may be (0 is the richest).
        attempts: this one included.
        ambiguous: earlier tries that may have arrived.
        others_pass: since this row was first tried, the sink has taken another one; so the row is at fault, not the sink.
    """

    id: int
    sink: str
    owed: Owed
    form: int
    attempts: int
    ambiguous: int
    created_at: float
    others_pass: bool


class RowState(StrEnum):
    """Where an owed message is (closed)."""

    PENDING = "pending"
    INFLIGHT = "inflight"
    DELIVERED = "delivered"
    SUPERSEDED = "superseded"  # an update that a newer one, or the end, made pointless
    DEAD = "dead"  # refused in every form while others passed, or too old


class HoldReason(StrEnum):
    """Why a sink is not spoken to for a while (closed)."""

    FAILING = "failing"  # our own back-off
    THROTTLED = "throttled"  # the provider asked for it
    BROKEN = "broken"  # credential or address: only a person can mend it


class Hold(msgspec.Struct, frozen=True):
    """A whole sink is left alone until then."""

    until: float
    reason: HoldReason


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What one try means for its row and its sink.

    Args:
        state: DELIVERED, DEAD, or PENDING to try again.
        not_before: when a pending row may be tried again.
        form: of the next try.
        ambiguous: this try may have arrived.
        detail: one line for people; must hold no secret.
        hold: leave the whole sink alone; None lifts what was held for.
    """

    state: RowState
    not_before: float = 0.0
    form: int = 0
    ambiguous: bool = False
    detail: str = ""
    hold: Hold | None = None


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One owed message as people see it: who is told what, and how far that got."""

    sink: str
    seq: int
    action: NoticeAction
    state: RowState
    created_at: float
    attempts: int
    ambiguous: int
    form: int
    last_detail: str | None
    ended_at: float | None


class SinkRow(msgspec.Struct, frozen=True, kw_only=True):
    """One sink as people see it; `oldest_at` is when its oldest waiting message was owed."""

    name: str
    waiting: int
    dead: int
    oldest_at: float | None
    held_until: float | None
    hold_reason: HoldReason | None
    last_delivered_at: float | None


class Point(msgspec.Struct, frozen=True):
    """One moment of a run's history, on a grid of ten seconds."""

    at: float
    power_share: float | None
    step: int | None
