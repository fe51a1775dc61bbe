"""What the API says, as frozen values, and what it needs from whoever knows. Speaks no HTTP and reads no store."""

from enum import StrEnum
from typing import Any, Protocol

import msgspec

from watchtower.model import Incident, RunState, RunView, Suspect


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One agent as `watchtower status` shows it; `fresh`: it answered within three intervals."""

    node: str
    url: str
    fresh: bool
    answered_at: float | None
    failed: str | None  # of the newest poll: timeout, refused, …
    failing_since: float | None
    agent_version: str | None
    nvml_state: str | None


class WatcherStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the watcher itself is; `unwell` is one sentence, or None. `stranded`: removed sink -> messages that wait for it."""

    version: str
    instance: str
    now: float
    started_at: float
    interval_s: float
    last_round_at: float | None
    unwell: str | None
    agents: int
    agents_fresh: int
    outbox_oldest_age_s: float
    sinks: tuple[str, ...]
    stranded: dict[str, int]


class RunIncident(msgspec.Struct, frozen=True, kw_only=True):
    """The open incident of a run: its number, who was told, who has taken it on."""

    id: int | None
    uid: str
    phase: str
    severity: str
    told: tuple[str, ...]
    acked_by: str | None
    acked_at: float | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `watchtower status` needs. `runs` are RunViews without `ranks`, each with `incident` (or null)."""

    watcher: WatcherStatus
    agents: tuple[AgentStatus, ...]
    runs: tuple[dict[str, Any], ...]


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One run in full, and its open incident."""

    run: RunView
    incident: RunIncident | None


class TransitionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A run's verdict became another, in the words of a replay's state record."""

    t: float
    run_id: str
    state: RunState
    previous: RunState | None
    since: float
    reason: str
    suspects: tuple[Suspect, ...]


class DeliveryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One message about an incident: to whom, and how far it got."""

    sink: str
    seq: int
    action: str
    state: str
    created_at: float
    attempts: int
    ended_at: float | None
    last_detail: str | None


class IncidentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One incident under the number that people use; `deliveries` only where one incident was asked for."""

    id: int
    incident: Incident
    deliveries: tuple[DeliveryAnswer, ...] | None = None


class AckOutcome(StrEnum):
    """What became of an acknowledgement."""

    DONE = "done"
    UNKNOWN = "unknown"  # no such incident
    OVER = "over"  # it is resolved


class Reads(Protocol):
    """What the API needs from the daemon. What is live answers at once; what is stored may wait for the disk."""

    def status(self) -> Status:
        """Everything at a glance, as of now."""
        ...

    def runs(self) -> tuple[RunView, ...]:
        """The runs of the newest round, by run_id."""
        ...

    def unwell(self) -> str | None:
        """Why the watcher is not to be relied on now, in one sentence; None when it is well."""
        ...

    def expose(self) -> bytes:
        """All series for Prometheus; may be called from another thread."""
        ...

    async def run(self, run_id: str) -> RunAnswer | None:
        """One run, also one that is no longer watched."""
        ...

    async def transitions(self, run_id: str, limit: int) -> tuple[TransitionAnswer, ...]:
        """A run's newest changes of verdict, newest first."""
        ...

    async def incidents(self, *, open_only: bool, limit: int) -> tuple[IncidentAnswer, ...]:
        """The newest incidents, newest first."""
        ...

    async def incident(self, number: int) -> IncidentAnswer | None:
        """One incident with its messages."""
        ...

    async def ack(self, number: int, by: str) -> AckOutcome:
        """Note who has taken an incident on."""
        ...
