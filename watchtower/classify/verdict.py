"""Asks the questions in order and turns the first answer into a verdict. The order is the rule; docs/verdicts.md tells it in words."""

from collections.abc import Mapping

import msgspec

from watchtower.classify.finding import FAULTS, SEVERITY, Finding, duration
from watchtower.classify.memory import NodeMemory, RunMemory
from watchtower.classify.pace import rule_for, slow
from watchtower.classify.processes import finished, gpu_lost, left, some_gone, suspended
from watchtower.classify.progress import gap_limit_s
from watchtower.classify.settings import RunRule, Thresholds
from watchtower.classify.stall import describe, follow_pauses, stalled, stuck
from watchtower.model import Activity, Evidence, RunState, Suspect, Verdict

# Attempts that all died at or below the step where the first did are a loop, not progress.
_LOOP_ATTEMPTS = 2
_UNFED_WORK_S = 30.0


def judge(
    run: RunMemory,
    nodes: Mapping[str, NodeMemory],
    *,
    now: float,
    thresholds: Thresholds,
    rules: tuple[RunRule, ...] = (),
) -> Verdict:
    """Judge one run now, and note in its memory what was judged.

    Args:
        run: its memory, after the round's observations were taken in.
        nodes: every agent; those that hold the run's ranks decide whether the run can be seen.
        now: the watcher's clock.

    Returns:
        Exactly one verdict. A fault that was named stays until a newer step (or, without a step feed, renewed work) proves
        it over; UNKNOWN neither heals nor accuses.
    """
    finding = _with_earlier_suspects(run, _ask(run, nodes, now=now, thresholds=thresholds, rules=rules))
    follow_pauses(run, stuck(run, now=now), now=now, fault=run.state in FAULTS or finding.state in FAULTS)
    finding = _keep_fault(run, finding, now=now)
    changed = finding.state is not run.state
    if changed:
        run.since = finding.since
    if finding.state in FAULTS and (run.state not in FAULTS or run.fault_step is None):
        run.fault_step = run.step
    run.state, run.suspects = finding.state, finding.suspects
    run.ever_worked = run.ever_worked or any(rank.activity is Activity.WORKING for rank in run.present())
    return Verdict(
        run_id=run.run_id,
        at=now,
        state=finding.state,
        since=run.since,
        reason=finding.reason,
        severity=finding.severity if finding.severity is not None else SEVERITY[finding.state],
        suspects=finding.suspects,
        evidence=finding.evidence,
    )


def _ask(
    run: RunMemory,
    nodes: Mapping[str, NodeMemory],
    *,
    now: float,
    thresholds: Thresholds,
    rules: tuple[RunRule, ...],
) -> Finding:
    gone = left(run, now=now, thresholds=thresholds)
    if gone is not None:
        return gone
    blind = _blind(run, nodes, now=now, thresholds=thresholds)
    if isinstance(blind, Finding):
        return blind
    if not run.present():  # all left, and the hold still runs
        return _as_before(run, now, "its processes have just left")
    lost_node = _node_loss(run, blind, now=now, thresholds=thresholds)
    return (
        finished(run, now=now, thresholds=thresholds)
        or suspended(run, now=now)
        or gpu_lost(run, now=now, thresholds=thresholds)
        or some_gone(run, now=now, thresholds=thresholds)
        or lost_node
        or _not_started(run, now=now, thresholds=thresholds)
        or stalled(run, now=now, thresholds=thresholds)
        or _loop(run, now=now)
        or slow(run, now=now, thresholds=thresholds, rule=rule_for(run, rules))
        or _progressing(run, now=now)
    )


def _blind(
    run: RunMemory, nodes: Mapping[str, NodeMemory], *, now: float, thresholds: Thresholds
) -> Finding | list[NodeMemory]:
    """UNKNOWN where too little of the run can be seen to say anything; otherwise its unseen nodes, maybe none."""
    names = {rank.node for rank in run.present()}
    unseen = [
        nodes[name] for name in sorted(names) if name in nodes and _unseen(nodes[name], now, thresholds)
    ]
    if names and len(unseen) * 2 > len(names):
        newest = max(node.answered_at or run.first_seen_at for node in unseen)
        why = ", ".join(f"{node.node}: {node.failed or 'silent'}" for node in unseen[:3]) + (
            " …" if len(unseen) > 3 else ""
        )
        return Finding(
            state=RunState.UNKNOWN,
            since=newest,
            reason=f"{len(unseen)} of {len(names)} agents do not answer ({why}); last answer {duration(now - newest)} ago",
            evidence=(Evidence("agents answering", f"{len(names) - len(unseen)} of {len(names)}"),),
        )
    seen = [rank for rank in run.present() if rank.node not in {node.node for node in unseen}]
    if seen and all(rank.activity is Activity.UNSEEN for rank in seen) and not _stepping(run, now):
        states = sorted({nodes[rank.node].nvml_state for rank in seen if rank.node in nodes})
        newest = max(rank.sample_at or run.first_seen_at for rank in seen)
        if now - newest > thresholds.stale_after_s:
            return Finding(
                state=RunState.UNKNOWN,
                since=newest,
                reason=f"no GPU of the run can be read (NVML {', '.join(states)}) and nothing says that steps go on",
            )
    return unseen


def _unseen(node: NodeMemory, now: float, thresholds: Thresholds) -> bool:
    return node.answered_at is None or now - node.answered_at > thresholds.stale_after_s


def _stepping(run: RunMemory, now: float) -> bool:
    return run.step_at is not None and now - run.step_at <= gap_limit_s(run)


def _node_loss(
    run: RunMemory, unseen: list[NodeMemory], *, now: float, thresholds: Thresholds
) -> Finding | None:
    """A minority of nodes fell silent and the rest stopped working and stepping with them: the nodes are gone, not our view."""
    if not unseen:
        return None
    since = min(node.answered_at or now for node in unseen)
    if now - since < thresholds.node_loss_hold_s or (run.step_at is not None and run.step_at > since + 30.0):
        return None
    names = {node.node for node in unseen}
    rest = [rank for rank in run.present() if rank.node not in names]
    if not rest or any(rank.activity not in {Activity.SPINNING, Activity.IDLE} for rank in rest):
        return None
    words = ", ".join(sorted(names))
    return Finding(
        state=RunState.CRASHED,
        since=since,
        reason=f"{words} silent for {duration(now - since)} and the other {len(rest)} ranks stopped working with it",
        suspects=tuple(
            Suspect(rank.rank, rank.node, rank.gpu_index, "its node no longer answers")
            for rank in sorted(run.present(), key=lambda rank: (rank.rank is None, rank.rank))
            if rank.node in names
        ),
        evidence=(
            Evidence(
                "nodes answering", f"{len({r.node for r in rest})} of {len({r.node for r in run.present()})}"
            ),
        ),
    )


def _not_started(run: RunMemory, *, now: float, thresholds: Thresholds) -> Finding | None:
    """STARTING until the first step; beyond the allowance only while somebody visibly prepares."""
    if _started(run):
        return None
    working = [rank for rank in run.present() if rank.activity is Activity.WORKING]
    if not run.fed and (
        run.ever_worked or any(now - (r.working_since or now) >= _UNFED_WORK_S for r in working)
    ):
        return None  # no step feed: power decides from here on
    age_s = now - run.started_at
    starting = Finding(
        state=RunState.STARTING,
        since=run.started_at,
        reason=f"{len(run.present())} processes exist, no step yet after {duration(age_s)}",
    )
    busy = any(
        (rank.busy_cpu_at or 0.0) > now - 60.0 or (rank.big_io_at or 0.0) > now - 60.0
        for rank in run.present()
    )
    if working or busy:
        return starting
    found = stuck(run, now=now)
    if found is None:
        return starting
    since = max(found.since, run.started_at)
    if age_s >= thresholds.start_allowance_s or (
        not found.idle and _nothing_prepares(run, since, now, thresholds)
    ):
        return describe(run, found, since=since, now=now)
    return starting


def _started(run: RunMemory) -> bool:
    """Whether this attempt has completed a step: a printed 0, or the step that a resume begins at, is none yet."""
    if run.step is None:
        return False
    return bool(run.gaps_s) or (run.step > 0 and any(rank.worked_at is not None for rank in run.present()))


def _nothing_prepares(run: RunMemory, since: float, now: float, thresholds: Thresholds) -> bool:
    """Every rank has been spinning for the hold, and no host burned CPU, no bytes moved and no memory grew meanwhile."""
    return now - since >= thresholds.init_spin_hold_s and all(
        max(rank.busy_cpu_at or 0.0, rank.big_io_at or 0.0, rank.memory_grew_at or 0.0) <= since + 15.0
        for rank in run.present()
    )


def _loop(run: RunMemory, *, now: float) -> Finding | None:
    """Attempts that never get beyond the highest step of the first: steps without net progress."""
    if (
        run.restarts < _LOOP_ATTEMPTS
        or run.highest_step is None
        or run.highest_step_at is None
        or run.step is None
    ):
        return None
    if run.step > run.highest_step or run.highest_step_at >= run.started_at:
        return None
    return Finding(
        state=RunState.SLOW,
        since=run.highest_step_at,
        reason=f"{run.restarts} restarts and no net progress: the highest step, {run.highest_step}, stands for {duration(now - run.highest_step_at)}",
        evidence=(Evidence("restarts", str(run.restarts)), Evidence("step now", str(run.step))),
    )


def _progressing(run: RunMemory, *, now: float) -> Finding:
    since = run.since if run.state is RunState.PROGRESSING else now
    if not run.fed:
        return Finding(
            state=RunState.PROGRESSING,
            since=since,
            reason="works as it has worked; there is no step feed, so this rests on power and utilization alone",
        )
    silent_s = now - (run.step_at or now)
    of = f" of {run.total_steps}" if run.total_steps else ""
    pause = (
        ""
        if silent_s <= gap_limit_s(run)
        else f"; no step for {duration(silent_s)}, a pause that is still within its allowance"
    )
    return Finding(state=RunState.PROGRESSING, since=since, reason=f"step {run.step}{of}{pause}")


def _as_before(run: RunMemory, now: float, why: str) -> Finding:
    state = run.state or RunState.STARTING
    return Finding(state=state, since=run.since, reason=why, suspects=run.suspects)


def _keep_fault(run: RunMemory, finding: Finding, *, now: float) -> Finding:
    """A named fault stays until progress disproves it; what replaces it is another fault, an end, or UNKNOWN."""
    if run.state not in FAULTS or finding.state not in {
        RunState.PROGRESSING,
        RunState.SLOW,
        RunState.STARTING,
    }:
        return finding
    if finding.state is RunState.STARTING and run.restarts and run.started_at > run.since:
        return finding
    if run.fed:
        if run.step is not None and (run.fault_step is None or run.step > run.fault_step):
            return finding
    elif any(
        rank.working_since is not None and now - rank.working_since >= _UNFED_WORK_S for rank in run.present()
    ):
        return finding
    return Finding(state=run.state, since=run.since, reason=finding.reason, suspects=run.suspects)


def _with_earlier_suspects(run: RunMemory, finding: Finding) -> Finding:
    """A run that was stuck and then crashed, by its own timeout or by a person's kill: who was suspected before stays named first."""
    if finding.state is not RunState.CRASHED or run.state not in FAULTS or not run.suspects:
        return finding
    known = {(suspect.rank, suspect.node) for suspect in run.suspects}
    later = tuple(s for s in finding.suspects if (s.rank, s.node) not in known)
    return msgspec.structs.replace(finding, suspects=run.suspects + later)


def proven(run: RunMemory) -> bool:
    """Whether the run is beyond every earlier attempt, so that an open incident may be taken for over."""
    return (
        run.restarts == 0
        or run.step is None
        or run.highest_step is None
        or (run.highest_step_at or 0.0) >= run.started_at
    )
