"""Answers the API's questions from the newest round, the polls and the store. Speaks no HTTP and changes nothing but an acknowledgement."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from watchtower import __version__
from watchtower.clock import Clock
from watchtower.daemon.round import STALE_ROUNDS, Rounds
from watchtower.daemon.store_thread import StoreThread
from watchtower.judge.step import Judge
from watchtower.metrics import Metrics
from watchtower.model import IncidentPhase, Notice, NoticeAction, Owed, RunState, RunView, Severity
from watchtower.notify.page import write_page
from watchtower.poller.schedule import AgentView, PollSchedule
from watchtower.store.records import DeliveryRow, NumberedIncident
from watchtower.store.store import Store
from watchtower.web.answers import (
    REFERENCE_SIGNS,
    AckOutcome,
    AgentStatus,
    DeliveryAnswer,
    IncidentAnswer,
    OtherIncident,
    PageLine,
    RunAnswer,
    RunIncident,
    Status,
    TransitionAnswer,
    WatcherStatus,
)

OUTBOX_STUCK_S = 300.0
_OF_A_PAGE = {"burning", "checkpoint", "NCCL timeout", "first"}
_TROUBLE = {
    RunState.DEADLOCKED,
    RunState.HUNG,
    RunState.CRASHED,
    RunState.SLOW,
    RunState.LINGERING,
    RunState.UNKNOWN,
}


class Answers:
    """What web.answers.Reads asks for.

    Args:
        instance: replaced at a reload.
    """

    def __init__(
        self,
        *,
        rounds: Rounds,
        polls: PollSchedule,
        store: Store,
        in_store: StoreThread,
        judge: Judge,
        metrics: Metrics,
        clock: Clock,
        instance: str,
    ) -> None:
        self._rounds = rounds
        self._store = store
        self._in_store = in_store
        self._judge = judge
        self._metrics = metrics
        self._clock = clock
        self._started_at = clock.now()
        self._polls = polls
        self.instance = instance

    def status(self) -> Status:
        """Everything at a glance."""
        now = self._clock.now()
        agents = tuple(self._agent(agent, now) for agent in self._polls.agents())
        watcher = WatcherStatus(
            version=__version__,
            instance=self.instance,
            now=now,
            started_at=self._started_at,
            interval_s=self._rounds.interval_s,
            last_round_at=self._rounds.last_at,
            unwell=self.unwell(),
            agents=len(agents),
            agents_fresh=sum(agent.fresh for agent in agents),
            outbox_oldest_age_s=self._rounds.outbox_age_s,
            sinks=self._rounds.sinks,
            stranded=self._rounds.stranded,
        )
        return Status(
            watcher=watcher,
            agents=agents,
            runs=tuple(self._run(view) for view in self._rounds.views),
            incidents=tuple(
                OtherIncident(
                    **_open_incident(one),
                    subject=one.incident.subject,
                    since=one.incident.since,
                    reason=one.incident.reason,
                )
                for one in self._rounds.open_incidents
                if one.incident.run_id is None
            ),
        )

    def runs(self) -> tuple[RunView, ...]:
        """The newest round's runs."""
        return self._rounds.views

    def unwell(self) -> str | None:
        """Why nobody should rely on this watcher now."""
        stale_s = self._rounds.stale_s()
        if stale_s is not None:
            return f"no round for {stale_s:.0f} s; one is due every {self._rounds.interval_s:g} s"
        if not self._rounds.sender.alive():
            return "the sender is stuck: messages are not going out"
        agents, fresh = self.fresh()
        if agents == 0:
            return "there are no agents to ask: check poll.targets and poll.target_files"
        if self._rounds.last_at is None:
            return "it has just started and not looked yet"
        if fresh == 0:
            return f"none of its {agents} agents answers" if agents > 1 else "its only agent does not answer"
        return None

    def trouble(self) -> str | None:
        """What the dead-man's switch should hear: unwell, or pages that no provider takes."""
        if self._rounds.outbox_age_s > OUTBOX_STUCK_S:
            return (
                self.unwell()
                or f"a message has waited for {self._rounds.outbox_age_s:.0f} s and no provider takes it"
            )
        return self.unwell()

    def fresh(self) -> tuple[int, int]:
        """How many agents are asked, and how many of them answered lately."""
        now = self._clock.now()
        agents = self._polls.agents()
        return len(agents), sum(self._is_fresh(agent, now) for agent in agents)

    def expose(self) -> bytes:
        """All series."""
        return self._metrics.expose()

    async def run(self, run_id: str) -> RunAnswer | None:
        """One run: as of the newest round, else as it was last recorded."""
        view = next((view for view in self._rounds.views if view.run_id == run_id), None)
        if view is not None:
            page = _page(view, self._clock.now())
            return RunAnswer(run=view, incident=self._incident_of(run_id), page=page)
        recorded = await self._in_store(self._store.run, run_id)
        return (
            None if recorded is None else RunAnswer(run=recorded, incident=self._incident_of(run_id), page=())
        )

    async def transitions(self, run_id: str, limit: int) -> tuple[TransitionAnswer, ...]:
        """A run's newest changes of verdict."""
        return tuple(
            TransitionAnswer(
                t=found.at,
                run_id=found.run_id,
                state=found.verdict.state,
                previous=found.previous,
                since=found.verdict.since,
                reason=found.verdict.reason,
                suspects=found.verdict.suspects,
            )
            for found in await self._in_store(self._store.transitions, run_id, limit)
        )

    async def incidents(self, *, open_only: bool, limit: int) -> tuple[IncidentAnswer, ...]:
        """The newest incidents."""
        found = await self._in_store(self._store.incidents, open_only=open_only, limit=limit)
        return tuple(IncidentAnswer(id=one.id, incident=one.incident) for one in found)

    async def incident(self, number: int) -> IncidentAnswer | None:
        """One incident and what was sent about it."""
        found = await self._in_store(self._store.incident, number)
        if found is None:
            return None
        sent = await self._in_store(self._store.deliveries, found.incident.uid)
        return IncidentAnswer(id=found.id, incident=found.incident, deliveries=_deliveries(sent))

    def number_of(self, reference: str) -> int | None:
        """The open incident with this reference."""
        fits = [one.id for one in self._rounds.open_incidents if one.incident.uid.startswith(reference)]
        return fits[0] if len(fits) == 1 else None

    async def ack(self, number: int, by: str) -> AckOutcome:
        """Note who has taken an incident on: first in the judge, or its next round would write the old state back."""
        found = await self._in_store(self._store.incident, number)
        if found is None:
            return AckOutcome.UNKNOWN
        if found.incident.phase is IncidentPhase.RESOLVED:
            return AckOutcome.OVER
        now = self._clock.now()
        acked = replace(found.incident, acked_by=by, acked_at=now)
        self._judge.acknowledged(acked)
        if await self._in_store(self._store.ack, number, by=by, at=now) is None:
            return AckOutcome.OVER
        self._rounds.open_incidents = tuple(
            NumberedIncident(one.id, replace(one.incident, acked_by=by, acked_at=now))
            if one.id == number
            else one
            for one in self._rounds.open_incidents
        )
        return AckOutcome.DONE

    def _agent(self, agent: AgentView, now: float) -> AgentStatus:
        return AgentStatus(
            node=agent.node,
            url=agent.url,
            fresh=self._is_fresh(agent, now),
            answered_at=agent.answered_at,
            failed=None if agent.failed is None else agent.failed.value,
            failed_detail=agent.failed_detail,
            failing_since=agent.failing_since,
            agent_version=agent.agent_version,
            nvml_state=agent.nvml_state,
            nvml_detail=agent.nvml_detail,
        )

    def _is_fresh(self, agent: AgentView, now: float) -> bool:
        return (
            agent.answered_at is not None
            and now - agent.answered_at <= STALE_ROUNDS * self._rounds.interval_s
        )

    def _run(self, view: RunView) -> dict[str, Any]:
        # Thousands of ranks in every glance would cost more than the glance; one run's are at /api/v1/runs/<id>.
        entry = {name: getattr(view, name) for name in view.__struct_fields__ if name != "ranks"}
        entry["incident"] = self._incident_of(view.run_id)
        return entry

    def _incident_of(self, run_id: str) -> RunIncident | None:
        for one in self._rounds.open_incidents:
            if one.incident.run_id == run_id:
                return RunIncident(**_open_incident(one))
        return None


def _open_incident(one: NumberedIncident) -> dict[str, Any]:
    """The fields of web.answers.RunIncident."""
    return {
        "id": one.id,
        "uid": one.incident.uid,
        "reference": one.incident.uid[:REFERENCE_SIGNS],
        "phase": one.incident.phase.value,
        "severity": one.incident.severity.value,
        "told": one.incident.told,
        "acked_by": one.incident.acked_by,
        "acked_at": one.incident.acked_at,
    }


def _page(view: RunView, now: float) -> tuple[PageLine, ...]:
    """What a page about the run would say now, in its words: what it costs, and what to do first."""
    if view.state not in _TROUBLE:
        return ()
    notice = Notice(
        incident_uid="",
        seq=0,
        action=NoticeAction.TRIGGER,
        severity=Severity.CRITICAL,
        state=view.state,
        at=now,
        since=view.since,
        subject=f"run:{view.run_id}",
        run_id=view.run_id,
        dedup_key="",
        reason=view.reason,
        suspects=view.suspects,
        evidence=view.evidence,
        view=view,
    )
    page = write_page(Owed(sink="", action=notice.action, notice=notice), now=now)
    return tuple(PageLine(fact.label, fact.text) for fact in page.facts if fact.label in _OF_A_PAGE)


def _deliveries(rows: Sequence[DeliveryRow]) -> tuple[DeliveryAnswer, ...]:
    return tuple(
        DeliveryAnswer(
            sink=row.sink,
            seq=row.seq,
            action=row.action.value,
            state=row.state.value,
            created_at=row.created_at,
            attempts=row.attempts,
            ended_at=row.ended_at,
            last_detail=row.last_detail,
        )
        for row in rows
    )
