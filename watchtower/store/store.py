"""The whole store: a round goes in as one transaction, and a fresh process gets all it needs to go on. Decides nothing about runs."""

import math
import sqlite3
from pathlib import Path

import msgspec

from watchtower.model import Incident, IncidentPhase, RunView
from watchtower.store.database import Database
from watchtower.store.history import SAMPLE_GRID_S, History
from watchtower.store.outbox import Outbox, enqueue
from watchtower.store.records import Loaded, RoundRecord

_encode = msgspec.json.Encoder().encode


class Store(Outbox, History):
    """Runs, incidents, owed messages and tracker state in one SQLite file.

    Synchronous; call it from one thread at a time. A kill between any two statements leaves either the whole round or
    nothing of it.
    """

    def __init__(self, database: Database) -> None:
        Outbox.__init__(self, database)
        History.__init__(self, database)

    @classmethod
    def open(cls, directory: Path, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> "Store":
        """Own the data directory and open the store in it, making both where they are missing.

        Args:
            directory: on a local disk; WAL does not work over NFS or Lustre.
            factory: the connection class; tests hand in one that dies at a chosen statement.

        Raises:
            StoreError: in use by another process, not writable, damaged, or of a newer version; show it and end.
        """
        return cls(Database.open(directory, factory))

    def close(self) -> None:
        """Close the file and give up the directory; nothing is pending in memory."""
        self._db.close()

    def record(self, round_record: RoundRecord) -> None:
        """Write one round: what is now, what changed, and what that owes.

        Recording the same round again changes nothing and owes nothing twice.

        Raises:
            StoreError: nothing of the round was written.
        """
        at = round_record.at
        with self._db.transaction() as write:
            _write_runs(write, round_record)
            write.executemany(
                "INSERT INTO cursor (node, cursor) VALUES (?, ?)"
                " ON CONFLICT (node) DO UPDATE SET cursor = excluded.cursor",
                round_record.cursors,
            )
            _write_transitions(write, round_record)
            # Resolved ones first: a subject's next incident may open in the same round.
            for incident in sorted(round_record.incidents, key=_is_open):
                _write_incident(write, incident)
            enqueue(write, round_record.owed, at)
            if round_record.judge_memory is not None:
                write.execute(
                    "INSERT OR REPLACE INTO meta (key, value) VALUES ('judge', ?)",
                    (round_record.judge_memory,),
                )

    def load(self) -> Loaded:
        """Read what a fresh process needs to go on."""
        runs = self._db.rows(
            "SELECT run_id, memory FROM run WHERE forgotten_at IS NULL AND memory IS NOT NULL"
        )
        judge = self._db.rows("SELECT value FROM meta WHERE key = 'judge'")
        return Loaded(
            views=self.runs(),
            memories={row["run_id"]: row["memory"] for row in runs},
            cursors={row["node"]: row["cursor"] for row in self._db.rows("SELECT node, cursor FROM cursor")},
            incidents=tuple(
                numbered.incident for numbered in reversed(self.incidents(open_only=True, limit=1_000_000))
            ),
            judge_memory=judge[0]["value"] if judge else None,
        )


def _write_runs(write: sqlite3.Connection, record: RoundRecord) -> None:
    write.executemany(
        "INSERT INTO run (run_id, view, updated_at) VALUES (?, ?, ?) ON CONFLICT (run_id)"
        " DO UPDATE SET view = excluded.view, updated_at = excluded.updated_at, forgotten_at = NULL",
        ((view.run_id, _encode(view).decode(), record.at) for view in record.views),
    )
    write.executemany(
        "INSERT INTO run (run_id, memory, updated_at) VALUES (?, ?, ?) ON CONFLICT (run_id)"
        " DO UPDATE SET memory = excluded.memory, updated_at = excluded.updated_at, forgotten_at = NULL",
        ((run_id, memory, record.at) for run_id, memory in record.memories),
    )
    write.executemany(
        "UPDATE run SET forgotten_at = ?, memory = NULL WHERE run_id = ?",
        ((record.at, run_id) for run_id in record.forgotten),
    )
    slot = int(record.at // SAMPLE_GRID_S) * SAMPLE_GRID_S
    write.executemany(
        "INSERT OR REPLACE INTO sample (at, run_id, power_share, step) VALUES (?, ?, ?, ?)",
        ((slot, view.run_id, _finite(view), view.step) for view in record.views),
    )


def _write_transitions(write: sqlite3.Connection, record: RoundRecord) -> None:
    for transition in record.transitions:
        verdict = transition.verdict
        row = (
            transition.at,
            transition.run_id,
            transition.previous,
            verdict.state,
            verdict.since,
            verdict.reason,
            _encode(verdict).decode(),
        )
        # A round that is recorded again, because nobody knew whether it had been written, is written once.
        write.execute(
            "INSERT INTO transition (at, run_id, previous, state, since, reason, verdict)"
            " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT EXISTS"
            " (SELECT 1 FROM transition WHERE run_id = ?2 AND at = ?1 AND verdict = ?7)",
            row,
        )


def _write_incident(write: sqlite3.Connection, incident: Incident) -> None:
    write.execute(
        "INSERT INTO incident (uid, subject, run_id, open, opened_at, resolved_at, incident)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (uid) DO UPDATE SET open = excluded.open,"
        " resolved_at = excluded.resolved_at, incident = excluded.incident",
        (
            incident.uid,
            incident.subject,
            incident.run_id,
            int(_is_open(incident)),
            incident.opened_at,
            incident.resolved_at,
            _encode(incident).decode(),
        ),
    )


def _is_open(incident: Incident) -> bool:
    return incident.phase is not IncidentPhase.RESOLVED


def _finite(view: RunView) -> float | None:
    share = view.power_share
    return share if share is not None and math.isfinite(share) else None
