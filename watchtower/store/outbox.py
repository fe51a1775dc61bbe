"""The messages owed and not yet delivered: claimed one at a time, settled after the provider spoke. Decides order, sends nothing."""

import logging
import sqlite3
from collections.abc import Collection, Iterable

import msgspec

from watchtower.model import NoticeAction, Owed
from watchtower.store.database import Database
from watchtower.store.records import Delivery, DeliveryRow, HoldReason, RowState, Settlement, SinkRow

_log = logging.getLogger(__name__)

# No wait is ever meant to be longer than this (a provider's Retry-After counts up to 900 s); a longer one was written before
# the wall clock was set back.
LONGEST_WAIT_S = 1000.0

_CLAIM = """
UPDATE outbox SET state = 'inflight', attempts = attempts + 1, first_tried_at = coalesce(first_tried_at, :now)
WHERE id = (
  SELECT o.id FROM outbox o
  WHERE o.sink = :sink AND o.state = 'pending' AND (o.not_before <= :now OR o.not_before > :now + :longest)
    AND NOT EXISTS (
      SELECT 1 FROM outbox p WHERE p.sink = o.sink AND p.incident_uid = o.incident_uid AND p.seq < o.seq
        AND p.state IN ('pending', 'inflight'))
  ORDER BY o.not_before, o.attempts, o.id LIMIT 1)
RETURNING id, sink, owed, form, attempts, ambiguous, created_at, first_tried_at
"""

_DUE = """
SELECT min(o.not_before) AS due FROM outbox o
WHERE o.sink = :sink AND o.state = 'pending'
  AND NOT EXISTS (
    SELECT 1 FROM outbox p WHERE p.sink = o.sink AND p.incident_uid = o.incident_uid AND p.seq < o.seq
      AND p.state IN ('pending', 'inflight'))
"""


class Outbox:
    """Owed messages. Within one sink and incident they go strictly by `seq`; among incidents, who waits longest goes first."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def claim(self, sink: str, now: float) -> Delivery | None:
        """Take the next message that may be tried now; it stays in flight until it is settled.

        Returns:
            None while nothing is due or the sink is held; `due_in` says for how long.
        """
        with self._db.transaction() as write:
            row = write.execute(
                "SELECT held_until, last_delivered_at FROM sink WHERE name = ?", (sink,)
            ).fetchone()
            if row is not None and _wait(row["held_until"], now) > 0:
                return None
            last = None if row is None else row["last_delivered_at"]
            claimed = write.execute(_CLAIM, {"sink": sink, "now": now, "longest": LONGEST_WAIT_S}).fetchone()
        if claimed is None:
            return None
        owed = _readable(claimed["owed"])
        if owed is None:
            self._give_up(claimed["id"], sink, now)
            return self.claim(sink, now)
        return Delivery(
            id=claimed["id"],
            sink=claimed["sink"],
            owed=owed,
            form=claimed["form"],
            attempts=claimed["attempts"],
            ambiguous=claimed["ambiguous"],
            created_at=claimed["created_at"],
            others_pass=last is not None and claimed["attempts"] > 1 and last >= claimed["first_tried_at"],
        )

    def due_in(self, sink: str, now: float) -> float | None:
        """Seconds until `claim` can give something (0 when now), None while nothing waits."""
        (row,) = self._db.rows(_DUE, {"sink": sink})
        if row["due"] is None:
            return None
        held = self._db.rows("SELECT held_until FROM sink WHERE name = ?", (sink,))
        return max(_wait(row["due"], now), _wait(held[0]["held_until"], now) if held else 0.0)

    def settle(self, delivery: Delivery, settlement: Settlement, now: float) -> None:
        """Write down what one try came to, for its row and for its sink, in one transaction."""
        ended = settlement.state is not RowState.PENDING
        with self._db.transaction() as write:
            write.execute(
                "UPDATE outbox SET state = ?, not_before = ?, form = ?, ambiguous = ambiguous + ?, last_detail = ?,"
                " ended_at = ? WHERE id = ? AND state = 'inflight'",
                (
                    settlement.state,
                    settlement.not_before,
                    settlement.form,
                    int(settlement.ambiguous),
                    settlement.detail[:200],
                    now if ended else None,
                    delivery.id,
                ),
            )
            _supersede_what_came_meanwhile(write, delivery.id, now)
            hold = settlement.hold
            write.execute(
                "INSERT INTO sink (name, held_until, hold_reason, last_delivered_at) VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT (name) DO UPDATE SET held_until = ?2, hold_reason = ?3,"
                " last_delivered_at = coalesce(?4, last_delivered_at)",
                (
                    delivery.sink,
                    None if hold is None else hold.until,
                    None if hold is None else hold.reason,
                    now if settlement.state is RowState.DELIVERED else None,
                ),
            )

    def _give_up(self, row_id: int, sink: str, now: float) -> None:
        # Else it would end the sender at each start, and every page behind it would wait for ever.
        _log.error("message_unreadable sink=%s row=%d (written by another version)", sink, row_id)
        with self._db.transaction() as write:
            write.execute(
                "UPDATE outbox SET state = ?, ended_at = ?, last_detail = 'cannot be read' WHERE id = ?",
                (RowState.DEAD, now, row_id),
            )

    def requeue_inflight(self, now: float) -> int:
        """At start: what a dead process had in flight may have arrived, so it is tried again and marked as a possible repeat.

        The lock on the directory proves that nobody else has it in flight. Holds end too, but for those that a provider
        asked for: a start may be the mended configuration.

        Returns:
            How many messages were in flight.
        """
        with self._db.transaction() as write:
            found = write.execute(
                "UPDATE outbox SET state = 'pending', ambiguous = ambiguous + 1, not_before = min(not_before, ?)"
                " WHERE state = 'inflight'",
                (now,),
            ).rowcount
            write.execute(
                "UPDATE sink SET held_until = NULL, hold_reason = NULL WHERE hold_reason <> ?",
                (HoldReason.THROTTLED,),
            )
            stale = write.execute(
                "SELECT id FROM outbox WHERE state = 'pending' AND action = 'update'"
            ).fetchall()
            for row in stale:
                _supersede_what_came_meanwhile(write, row["id"], now)
        return found

    def outbox_age(self, now: float, sinks: Collection[str] | None = None) -> float:
        """Seconds since the oldest waiting message was owed, 0 when none waits; `sinks` leaves out those that are not configured."""
        waiting = [s for s in self.sinks() if s.oldest_at is not None and (sinks is None or s.name in sinks)]
        return max((now - s.oldest_at for s in waiting if s.oldest_at is not None), default=0.0)

    def stranded(self, sinks: Collection[str]) -> dict[str, int]:
        """Sink -> messages that wait for it, for every sink but these: nobody sends them until it is configured again."""
        return {s.name: s.waiting for s in self.sinks() if s.waiting and s.name not in sinks}

    def pending(self, sink: str) -> int:
        """How many messages wait for this sink, the one in flight included."""
        return next((s.waiting for s in self.sinks() if s.name == sink), 0)

    def sinks(self) -> tuple[SinkRow, ...]:
        """Every sink that anything was ever owed to and is still remembered, by name."""
        rows = self._db.rows(
            "SELECT n.name, count(o.id) AS waiting, min(o.created_at) AS oldest_at,"
            " (SELECT count(*) FROM outbox d WHERE d.sink = n.name AND d.state = 'dead') AS dead,"
            " s.held_until, s.hold_reason, s.last_delivered_at"
            " FROM (SELECT name FROM sink UNION SELECT DISTINCT sink FROM outbox) n"
            " LEFT JOIN sink s ON s.name = n.name"
            " LEFT JOIN outbox o ON o.sink = n.name AND o.state IN ('pending', 'inflight')"
            " GROUP BY n.name ORDER BY n.name"
        )
        return tuple(
            SinkRow(
                name=row["name"],
                waiting=row["waiting"],
                dead=row["dead"],
                oldest_at=row["oldest_at"],
                held_until=row["held_until"],
                hold_reason=None if row["hold_reason"] is None else HoldReason(row["hold_reason"]),
                last_delivered_at=row["last_delivered_at"],
            )
            for row in rows
        )

    def deliveries(self, incident_uid: str) -> tuple[DeliveryRow, ...]:
        """Every message owed about one incident, oldest first."""
        rows = self._db.rows("SELECT * FROM outbox WHERE incident_uid = ? ORDER BY seq, id", (incident_uid,))
        return tuple(
            DeliveryRow(
                sink=row["sink"],
                seq=row["seq"],
                action=NoticeAction(row["action"]),
                state=RowState(row["state"]),
                created_at=row["created_at"],
                attempts=row["attempts"],
                ambiguous=row["ambiguous"],
                form=row["form"],
                last_detail=row["last_detail"],
                ended_at=row["ended_at"],
            )
            for row in rows
        )


def enqueue(write: sqlite3.Connection, owed: Iterable[Owed], at: float) -> None:
    """Add owed messages inside the caller's transaction; what is already there stays as it is.

    An update that still waits is superseded by any newer message; a trigger or a resolve never is.
    """
    for message in owed:
        notice = message.notice
        added = write.execute(
            "INSERT OR IGNORE INTO outbox (sink, incident_uid, seq, action, owed, created_at, not_before)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                message.sink,
                notice.incident_uid,
                notice.seq,
                message.action,
                msgspec.json.encode(message).decode(),
                at,
                at,
            ),
        ).rowcount
        if added:
            write.execute(
                "UPDATE outbox SET state = 'superseded', ended_at = ? WHERE sink = ? AND incident_uid = ? AND seq < ?"
                " AND state = 'pending' AND action = 'update'",
                (at, message.sink, notice.incident_uid, notice.seq),
            )


def _readable(text: str) -> Owed | None:
    """An owed message; without its view where only that is of another version's making, None where nothing helps."""
    try:
        return msgspec.json.decode(text, type=Owed)
    except msgspec.DecodeError:
        pass
    try:
        raw = msgspec.json.decode(text)
        raw["notice"]["view"] = None
        return msgspec.convert(raw, Owed)
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def _supersede_what_came_meanwhile(write: sqlite3.Connection, row_id: int, now: float) -> None:
    # While a row was in flight, a newer message could not supersede it; if the try failed, that is made up for here.
    write.execute(
        "UPDATE outbox SET state = 'superseded', ended_at = ?1 WHERE id = ?2 AND state = 'pending' AND action = 'update'"
        " AND EXISTS (SELECT 1 FROM outbox n WHERE n.sink = outbox.sink AND n.incident_uid = outbox.incident_uid"
        " AND n.seq > outbox.seq)",
        (now, row_id),
    )


def _wait(until: float | None, now: float) -> float:
    if until is None or until <= now or until > now + LONGEST_WAIT_S:
        return 0.0
    return until - now
