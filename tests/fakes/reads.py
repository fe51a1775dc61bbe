"""What the API reads in tests: a status that is set by hand, three incidents, one run. Stands in for the daemon."""

from typing import Any

import msgspec

from tests.fakes.views import NOW, deadlocked_view, run_view
from watchtower.model import Incident, IncidentPhase, RunState, RunView, Severity
from watchtower.web.answers import (
    AckOutcome,
    AgentStatus,
    IncidentAnswer,
    OtherIncident,
    PageLine,
    RunAnswer,
    RunIncident,
    Status,
    TransitionAnswer,
    WatcherStatus,
)


def incident(**fields: Any) -> Incident:
    known: dict[str, Any] = {
        "uid": "01J",
        "subject": "run:slurm-4411",
        "run_id": "slurm-4411",
        "phase": IncidentPhase.FIRING,
        "severity": Severity.CRITICAL,
        "state": RunState.DEADLOCKED,
        "opened_at": NOW - 40,
        "since": NOW - 94,
        "reason": "16 of 16 ranks spin",
        "dedup_key": "watchtower/run:slurm-4411/01J",
        "told": ("slack", "pagerduty"),
    }
    return Incident(**(known | fields))


def watcher_status(**fields: Any) -> WatcherStatus:
    known: dict[str, Any] = {
        "version": "0.1.0",
        "instance": "test",
        "now": NOW,
        "started_at": NOW - 86400,
        "interval_s": 5.0,
        "last_round_at": NOW - 2,
        "unwell": None,
        "agents": 2,
        "agents_fresh": 2,
        "outbox_oldest_age_s": 0.0,
        "sinks": ("slack", "pagerduty"),
        "stranded": {},
    }
    return WatcherStatus(**(known | fields))


def agent_status(node: str, **fields: Any) -> AgentStatus:
    known: dict[str, Any] = {
        "node": node,
        "url": f"http://{node}:9477",
        "fresh": True,
        "answered_at": NOW - 3,
        "failed": None,
        "failed_detail": None,
        "failing_since": None,
        "agent_version": "0.1.0",
        "nvml_state": "ok",
        "nvml_detail": None,
    }
    return AgentStatus(**(known | fields))


def other_incident(**fields: Any) -> OtherIncident:
    known: dict[str, Any] = {
        "id": 9,
        "uid": "abcdef0123456789",
        "reference": "abcdef01",
        "phase": "firing",
        "severity": "warning",
        "told": ("slack",),
        "acked_by": None,
        "acked_at": None,
        "subject": "nodes",
        "since": NOW - 600,
        "reason": "1 of 2 nodes cannot be watched",
    }
    return OtherIncident(**(known | fields))


def run_entry(view: RunView, **open_incident: Any) -> dict[str, Any]:
    """One entry of `runs` in a status."""
    entry = {field: getattr(view, field) for field in view.__struct_fields__ if field != "ranks"}
    entry["incident"] = None
    if open_incident:
        known: dict[str, Any] = {
            "id": 7,
            "uid": "01J0000011112222",
            "reference": "01J00000",
            "phase": "firing",
            "severity": "critical",
            "told": ("slack", "pagerduty"),
            "acked_by": None,
            "acked_at": None,
        }
        entry["incident"] = RunIncident(**(known | open_incident))
    return entry


class FakeReads:
    """Set what it should say, then ask."""

    def __init__(self) -> None:
        self.views: tuple[RunView, ...] = (deadlocked_view(), run_view(run_id="slurm-5000", run_name="other"))
        self.problem: str | None = None
        self.page: tuple[PageLine, ...] = ()
        self.acked: list[tuple[int, str]] = []
        self.incident_by_number = {
            7: incident(),
            3: incident(uid="00A", phase=IncidentPhase.RESOLVED, resolved_at=NOW - 9000),
        }

    def status(self) -> Status:
        return Status(
            watcher=watcher_status(unwell=self.problem),
            agents=(agent_status("gpu-a"), agent_status("gpu-b")),
            runs=(run_entry(self.views[0], id=7), run_entry(self.views[1])),
            incidents=(),
        )

    def runs(self) -> tuple[RunView, ...]:
        return self.views

    def unwell(self) -> str | None:
        return self.problem

    def expose(self) -> bytes:
        return b"watchtower_rounds_total 1.0\n"

    async def run(self, run_id: str) -> RunAnswer | None:
        view = next((view for view in self.views if view.run_id == run_id), None)
        return None if view is None else RunAnswer(run=view, incident=None, page=self.page)

    async def transitions(self, run_id: str, limit: int) -> tuple[TransitionAnswer, ...]:
        one = TransitionAnswer(
            t=NOW,
            run_id=run_id,
            state=RunState.DEADLOCKED,
            previous=RunState.PROGRESSING,
            since=NOW - 94,
            reason="spins",
            suspects=(),
        )
        return (one,) * min(limit, 3)

    async def incidents(self, *, open_only: bool, limit: int) -> tuple[IncidentAnswer, ...]:
        return tuple(
            IncidentAnswer(id=number, incident=known)
            for number, known in self.incident_by_number.items()
            if not open_only or known.phase is not IncidentPhase.RESOLVED
        )[:limit]

    async def incident(self, number: int) -> IncidentAnswer | None:
        known = self.incident_by_number.get(number)
        return None if known is None else IncidentAnswer(id=number, incident=known, deliveries=())

    def number_of(self, reference: str) -> int | None:
        return next(
            (n for n, known in self.incident_by_number.items() if known.uid.startswith(reference)), None
        )

    async def ack(self, number: int, by: str) -> AckOutcome:
        known = self.incident_by_number.get(number)
        if known is None:
            return AckOutcome.UNKNOWN
        if known.phase is IncidentPhase.RESOLVED:
            return AckOutcome.OVER
        self.acked.append((number, by))
        self.incident_by_number[number] = msgspec.structs.replace(known, acked_by=by, acked_at=NOW)
        return AckOutcome.DONE
