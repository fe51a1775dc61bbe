"""Reads of runs, verdicts, incidents and samples, and their pruning. Knows nothing of messages."""

import sqlite3

import msgspec
from msgspec.structs import replace

from watchtower.model import Incident, RunState, RunView, Verdict
from watchtower.store.database import Database, StoreError
from watchtower.store.records import NumberedIncident, Point, Transition

SAMPLE_GRID_S = 10
_DAY_S = 86_400.0
_BATCH = 5000

_view_decoder = msgspec.json.Decoder(RunView)
_incident_decoder = msgspec.json.Decoder(Incident)
_verdict_decoder = msgspec.json.Decoder(Verdict)


class History:
    """What was judged, and what became of it."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def runs(self) -> tuple[RunView, ...]:
        """Every run still watched, as it was last recorded, by run_id."""
        rows = self._db.rows(
            "SELECT view FROM run WHERE view IS NOT NULL AND forgotten_at IS NULL ORDER BY run_id"
        )
        return tuple(view for row in rows if (view := _view(row["view"])) is not None)

    def run(self, run_id: str) -> RunView | None:
        """One run, forgotten or not."""
        rows = self._db.rows("SELECT view FROM run WHERE run_id = ? AND view IS NOT NULL", (run_id,))
        return _view(rows[0]["view"]) if rows else None

    def transitions(self, run_id: str, limit: int = 100) -> tuple[Transition, ...]:
        """The newest `limit` changes of a run's verdict, newest first."""
        rows = self._db.rows(
            "SELECT * FROM transition WHERE run_id = ? ORDER BY id DESC LIMIT ?", (run_id, limit)
        )
        return tuple(
            Transition(
                run_id=row["run_id"],
                at=row["at"],
                previous=None if row["previous"] is None else RunState(row["previous"]),
                verdict=_verdict_decoder.decode(row["verdict"]),
            )
            for row in rows
        )

    def incidents(self, *, open_only: bool = False, limit: int = 100) -> tuple[NumberedIncident, ...]:
        """The newest `limit` incidents, newest first."""
        only = "WHERE open = 1" if open_only else ""
        rows = self._db.rows(f"SELECT id, incident FROM incident {only} ORDER BY id DESC LIMIT ?", (limit,))  # noqa: S608 (our own words)
        return tuple(_numbered(row) for row in rows)

    def incident(self, number: int) -> NumberedIncident | None:
        """One incident by the number people use."""
        rows = self._db.rows("SELECT id, incident FROM incident WHERE id = ?", (number,))
        return _numbered(rows[0]) if rows else None

    def incident_of_uid(self, uid: str) -> NumberedIncident | None:
        """One incident by its lasting name."""
        rows = self._db.rows("SELECT id, incident FROM incident WHERE uid = ?", (uid,))
        return _numbered(rows[0]) if rows else None

    def samples(self, run_id: str, *, since: float) -> tuple[Point, ...]:
        """A run's history from `since` on, oldest first."""
        rows = self._db.rows(
            "SELECT at, power_share, step FROM sample WHERE at >= ? AND run_id = ? ORDER BY at",
            (since, run_id),
        )
        return tuple(Point(float(row["at"]), row["power_share"], row["step"]) for row in rows)

    def ack(self, number: int, *, by: str, at: float) -> Incident | None:
        """Note who has taken an open incident on.

        Returns:
            The incident as it is now, for the judge to carry on with; None when there is no such open incident.
        """
        with self._db.transaction() as write:
            row = write.execute(
                "SELECT incident FROM incident WHERE id = ? AND open = 1", (number,)
            ).fetchone()
            if row is None:
                return None
            incident = replace(_incident_decoder.decode(row["incident"]), acked_by=by, acked_at=at)
            write.execute(
                "UPDATE incident SET incident = ? WHERE id = ?",
                (msgspec.json.encode(incident).decode(), number),
            )
        return incident

    def prune(self, now: float, *, samples_d: float = 7.0, history_d: float = 30.0) -> int:
        """Forget what is too old, in one small batch per table, so that a round never waits long; call it often.

        Waiting messages and open incidents are never forgotten.

        Returns:
            How many rows went; 0 when there is nothing more to do.
        """
        old = now - history_d * _DAY_S
        steps: tuple[tuple[str, float], ...] = (
            (
                "DELETE FROM sample WHERE (at, run_id) IN (SELECT at, run_id FROM sample WHERE at < ? LIMIT ?)",
                now - samples_d * _DAY_S,
            ),
            (
                "DELETE FROM transition WHERE id IN (SELECT id FROM transition WHERE at < ? LIMIT ?)",
                old,
            ),
            (
                "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE ended_at < ? LIMIT ?)",
                old,
            ),
            (
                (
                    "DELETE FROM incident WHERE id IN (SELECT id FROM incident i WHERE open = 0 AND resolved_at < ?"
                    " AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.incident_uid = i.uid) LIMIT ?)"
                ),
                old,
            ),
            (
                "DELETE FROM run WHERE run_id IN (SELECT run_id FROM run WHERE forgotten_at < ? LIMIT ?)",
                old,
            ),
        )
        gone = 0
        for sql, before in steps:
            with self._db.transaction() as write:
                gone += write.execute(sql, (before, _BATCH)).rowcount
        self._db.rows("PRAGMA incremental_vacuum(200)")
        return gone


def _view(text: str) -> RunView | None:
    """A view as it was stored; None for one of another version's making: the next round makes it anew."""
    try:
        return _view_decoder.decode(text)
    except msgspec.DecodeError:
        return None


def _numbered(row: sqlite3.Row) -> NumberedIncident:
    try:
        return NumberedIncident(row["id"], _incident_decoder.decode(row["incident"]))
    except msgspec.DecodeError as error:
        # Going on without it would page anew for what is open, and leave what was told open for ever.
        raise StoreError(
            f"incident {row['id']} was written by another watchtower and cannot be read ({error}); "
            "install that version again, or move the data directory away to start afresh"
        ) from None
