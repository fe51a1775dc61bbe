"""One round of judgement: observations in; verdicts, incidents and owed messages out. No clock, no I/O; live and replayed rounds are the same."""

import traceback
from collections.abc import Sequence

import msgspec

from watchtower.alerts.lifecycle import advance, close
from watchtower.alerts.owing import owed
from watchtower.classify.finding import SEVERITY
from watchtower.classify.ingest import take
from watchtower.classify.memory import NodeMemory, RunMemory
from watchtower.classify.verdict import judge, proven
from watchtower.classify.view import view
from watchtower.judge.settings import JudgeSettings
from watchtower.judge.watching import NODES, WATCHER, nodes_blind, seeing, watcher_blind
from watchtower.model import (
    Incident,
    IncidentPhase,
    Notice,
    Observation,
    Owed,
    RunState,
    RunView,
    Severity,
    Suspect,
    Verdict,
)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A run's state, or its suspects, became another."""

    run_id: str
    at: float
    previous: (
        RunState | None
    )  # None for the first; equal to the verdict's own state where only the suspects changed
    verdict: Verdict


class Trouble(msgspec.Struct, frozen=True):
    """Judging one run, or taking in one node's answer, raised what nobody expected: our bug. It cost one round of that one."""

    run_id: str  # or which answer it was
    trace: str


class JudgeStep(msgspec.Struct, frozen=True, kw_only=True):
    """All that one round came to."""

    at: float
    views: tuple[RunView, ...] = ()
    changes: tuple[Change, ...] = ()
    incidents: tuple[Incident, ...] = ()  # those that changed
    notices: tuple[Notice, ...] = ()
    owed: tuple[Owed, ...] = ()
    touched: tuple[tuple[str, bytes], ...] = ()  # memory of the runs whose verdict or incident changed
    forgotten: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()


class _Saved(msgspec.Struct, kw_only=True):
    nodes: dict[str, NodeMemory] = {}


class _Round:
    """What one round gathers before it is frozen into a JudgeStep."""

    def __init__(self) -> None:
        self.views: list[RunView] = []
        self.changes: list[Change] = []
        self.incidents: list[Incident] = []
        self.notices: list[Notice] = []
        self.owed: list[Owed] = []
        self.touched: set[str] = set()
        self.troubles: list[Trouble] = []


class Judge:
    """The memory between rounds, and the round itself."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._thresholds = settings.thresholds()
        self._nodes: dict[str, NodeMemory] = {}
        self._runs: dict[str, RunMemory] = {}
        self._incidents: dict[str, Incident] = {}  # open ones, by subject
        self._expected: frozenset[str] | None = None  # the agents that are polled; None: whoever speaks
        self._last_at: float | None = None
        self._resumed_at = float("-inf")

    def reconfigure(self, settings: JudgeSettings) -> None:
        """Judge by other settings from the next round on; memory and open incidents stay."""
        self._settings = settings
        self._thresholds = settings.thresholds()

    def expect(self, nodes: Sequence[str]) -> None:
        """Name the agents that are polled now; a run that only lives on others is no longer watched."""
        self._expected = frozenset(nodes)
        for name in [name for name in self._nodes if name not in self._expected]:
            if not any(rank.node == name for run in self._runs.values() for rank in run.present()):
                del self._nodes[name]
        for name in nodes:
            self._nodes.setdefault(name, NodeMemory(node=name))

    def restore(
        self,
        *,
        memories: dict[str, bytes],
        incidents: Sequence[Incident],
        judge_memory: bytes | None,
        now: float,
    ) -> tuple[str, ...]:
        """Take back what `memories` and `judge_memory` gave before a restart.

        Returns:
            The ids of runs whose memory could not be read (written by another version): they are learned anew.
        """
        unreadable = []
        for run_id, saved in memories.items():
            try:
                self._runs[run_id] = msgspec.json.decode(saved, type=RunMemory)
            except msgspec.DecodeError:
                unreadable.append(run_id)
        if judge_memory is not None:
            try:
                self._nodes = msgspec.json.decode(judge_memory, type=_Saved).nodes
            except msgspec.DecodeError:
                self._nodes = {}
        self._resume(now)
        self._incidents = {i.subject: i for i in incidents if i.phase is not IncidentPhase.RESOLVED}
        return tuple(unreadable)

    def memories(self) -> tuple[tuple[str, bytes], ...]:
        """Every run's memory, for a periodic save."""
        return tuple((run_id, msgspec.json.encode(run)) for run_id, run in self._runs.items())

    def judge_memory(self) -> bytes:
        """What is remembered beside the runs."""
        return msgspec.json.encode(_Saved(nodes=self._nodes))

    def acknowledged(self, incident: Incident) -> None:
        """Take over an incident that a person has acknowledged, if it is still the open one."""
        known = self._incidents.get(incident.subject)
        if known is not None and known.uid == incident.uid:
            self._incidents[incident.subject] = msgspec.structs.replace(
                known, acked_by=incident.acked_by, acked_at=incident.acked_at
            )

    def step(self, observations: Sequence[Observation], now: float) -> JudgeStep:
        """Take one round's observations in and judge every run.

        Args:
            observations: what the polls of this round brought, in order of `at`; may be empty.
            now: the watcher's clock, at or after the newest observation.
        """
        done = _Round()
        if self._last_at is not None and now - self._last_at > self._thresholds.stale_after_s:
            self._resume(now)
        self._last_at = now
        for observation in observations:
            self._take(observation, done)
        verdicts = {run_id: self._judge_run(run, now, done) for run_id, run in self._runs.items()}
        blind = watcher_blind(self._nodes, verdicts, now=now, thresholds=self._thresholds)
        self._advance_if(WATCHER, blind, now, done)
        blind_nodes = nodes_blind(self._nodes, self._runs, verdicts, now=now, thresholds=self._thresholds)
        self._advance_if(NODES, blind_nodes if blind is None else None, now, done)
        shown = {seen.run_id: seen for seen in done.views}
        for run_id, verdict in verdicts.items():
            # One cause, one incident: while the watcher itself is blind, the runs that it cannot see are its members.
            member = blind is not None and verdict.state is RunState.UNKNOWN
            if not member:
                self._advance(f"run:{run_id}", self._unproven(verdict), shown.get(run_id), done)
        forgotten = self._forget(now, shown, done)
        return JudgeStep(
            at=now,
            views=tuple(done.views),
            changes=tuple(done.changes),
            incidents=tuple(done.incidents),
            notices=tuple(done.notices),
            owed=tuple(done.owed),
            touched=tuple(
                (run_id, msgspec.json.encode(self._runs[run_id]))
                for run_id in sorted(done.touched)
                if run_id in self._runs
            ),
            forgotten=forgotten,
            troubles=tuple(done.troubles),
        )

    def _take(self, observation: Observation, done: _Round) -> None:
        try:
            take(observation, nodes=self._nodes, runs=self._runs, thresholds=self._thresholds)
        except Exception:  # noqa: BLE001  one node's answer that trips over our bug must not cost the round
            done.troubles.append(Trouble(f"what {observation.node} said", traceback.format_exc()))

    def _judge_run(self, run: RunMemory, now: float, done: _Round) -> Verdict:
        previous, suspects, since = run.state, run.suspects, run.since
        try:
            verdict = self._not_looked_yet(run, now) or judge(
                run, self._nodes, now=now, thresholds=self._thresholds, rules=self._settings.runs
            )
            done.views.append(
                view(
                    run, verdict, self._nodes, now=now, thresholds=self._thresholds, rules=self._settings.runs
                )
            )
        except Exception:  # noqa: BLE001  our bug must cost one run one `unknown`, not every run its watcher
            done.troubles.append(Trouble(run.run_id, traceback.format_exc()))
            run.state, run.suspects, run.since = previous, suspects, since
            return Verdict(
                run_id=run.run_id,
                at=now,
                state=RunState.UNKNOWN,
                since=now,
                severity=Severity.WARNING,
                reason="judging this run failed inside watchtower",
            )
        if verdict.state is not previous or _who(verdict.suspects) != _who(suspects):
            done.changes.append(Change(run_id=run.run_id, at=now, previous=previous, verdict=verdict))
            done.touched.add(run.run_id)
        return verdict

    def _resume(self, now: float) -> None:
        """We were away. That time is ours, not the agents' or the runs': silence counts from now on, and no hold ran meanwhile."""
        self._resumed_at = now
        for node in self._nodes.values():
            if node.answered_at is not None:
                node.answered_at = max(node.answered_at, now)

    def _not_looked_yet(self, run: RunMemory, now: float) -> Verdict | None:
        """What was judged before we were away, until every rank was seen again or its node can be called silent."""
        away = now - self._resumed_at <= self._thresholds.stale_after_s
        present = run.present()
        if (
            run.state is None
            or not present
            or not away
            or all(rank.seen_at > self._resumed_at for rank in present)
        ):
            return None
        return Verdict(
            run_id=run.run_id,
            at=now,
            state=run.state,
            since=run.since,
            reason="as before the watcher was away; not looked at again yet",
            severity=SEVERITY[run.state],
            suspects=run.suspects,
        )

    def _unproven(self, verdict: Verdict) -> Verdict:
        """A restarted run that has not yet come beyond its earlier attempts neither heals its incident nor opens one."""
        incident = self._incidents.get(f"run:{verdict.run_id}")
        if (
            incident is None
            or verdict.state is not RunState.PROGRESSING
            or proven(self._runs[verdict.run_id])
        ):
            return verdict
        return msgspec.structs.replace(verdict, state=RunState.STARTING)

    def _advance_if(self, subject: str, verdict: Verdict | None, now: float, done: _Round) -> None:
        """Let an incident about what is watched begin, go on or end."""
        if verdict is not None or subject in self._incidents:
            self._advance(subject, verdict or seeing(now), None, done)

    def _advance(self, subject: str, verdict: Verdict, shown: RunView | None, done: _Round) -> None:
        before = self._incidents.get(subject)
        result = advance(before, verdict, shown, subject=subject, settings=self._settings.alerts)
        self._settle(subject, before, result.incident, result.notices, done)

    def _settle(
        self,
        subject: str,
        before: Incident | None,
        after: Incident | None,
        notices: Sequence[Notice],
        done: _Round,
    ) -> None:
        if after is None or after is before:
            return
        for notice in notices:
            after, messages = owed(after, notice, self._settings.alerts.routes)
            done.notices.append(notice)
            done.owed.extend(messages)
        done.incidents.append(after)
        if after.run_id is not None:
            done.touched.add(after.run_id)
        if after.phase is IncidentPhase.RESOLVED:
            self._incidents.pop(subject, None)
        else:
            self._incidents[subject] = after

    def _forget(self, now: float, shown: dict[str, RunView], done: _Round) -> tuple[str, ...]:
        gone = {
            run_id: why for run_id, run in self._runs.items() if (why := self._over(run, now)) is not None
        }
        for run_id, why in gone.items():
            incident = self._incidents.get(f"run:{run_id}")
            if incident is not None:
                result = close(incident, at=now, reason=why, view=shown.get(run_id))
                self._settle(incident.subject, incident, result.incident, result.notices, done)
            del self._runs[run_id]
        return tuple(gone)

    def _over(self, run: RunMemory, now: float) -> str | None:
        """Why a run need not be remembered any longer, or None."""
        if now - run.seen_at > self._thresholds.forget_after_s:
            return "forgotten"
        present = run.present()
        if (
            self._expected is not None
            and present
            and not any(rank.node in self._expected for rank in present)
        ):
            return "no longer watched"
        return None


def _who(suspects: Sequence[Suspect]) -> frozenset[tuple[int | None, str]]:
    return frozenset((suspect.rank, suspect.node) for suspect in suspects)
