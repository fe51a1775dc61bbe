"""What the API says, as frozen values, and what it needs from whoever knows. Speaks no HTTP and reads no store."""

from enum import StrEnum
from typing import Any, Protocol

import msgspec

from watchtower.model import Incident, RunState, RunView, Suspect

REFERENCE_SIGNS = 8  # of an incident's uid: what pages show


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One agent as `watchtower status` shows it; `fresh`: it answered within three intervals. Details are one line each."""

    node: str
    url: str
    fresh: bool
    answered_at: float | None
    failed: str | None  # of the newest poll: timeout, refused, …
    failed_detail: str | None
    failing_since: float | None
    agent_version: str | None
    nvml_state: str | None
    nvml_detail: str | None


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
    """The open incident of a run: its number, the reference that its pages show, who was told, who has taken it on."""

    id: int | None
    uid: str
    reference: str
    phase: str
    severity: str
    told: tuple[str, ...]
    acked_by: str | None
    acked_at: float | None


class OtherIncident(RunIncident, frozen=True, kw_only=True):
    """An open incident that is about no run."""

    subject: str  # "nodes" or "watcher"
    since: float
    reason: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `watchtower status` needs. `runs` are RunViews without `ranks`, each with `incident` (or null)."""

    watcher: WatcherStatus
    agents: tuple[AgentStatus, ...]
    runs: tuple[dict[str, Any], ...]
    incidents: tuple[OtherIncident, ...]  # those about no run


class PageLine(msgspec.Struct, frozen=True):
    """One labelled line of a page."""

    label: str
    text: str


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One run in full, its open incident, and what a page about it would say now of its cost and of what to do first."""

    run: RunView
    incident: RunIncident | None
    page: tuple[
        PageLine, ...
    ] = ()  # burning, checkpoint, NCCL timeout, first: those that there is something to say of


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

    def number_of(self, reference: str) -> int | None:
        """The number of the one open incident whose pages show this reference; None when there is none such."""
        ...

    async def ack(self, number: int, by: str) -> AckOutcome:
        """Note who has taken an incident on."""
        ...
