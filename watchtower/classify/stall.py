"""Asks what a run is doing that has made no step for longer than its own pace: pausing, deadlocked or hung. Processes are asked elsewhere."""

import msgspec

from watchtower.classify.activity import mean
from watchtower.classify.finding import Finding, duration
from watchtower.classify.memory import RankMemory, RunMemory
from watchtower.classify.progress import gap_limit_s
from watchtower.classify.settings import Thresholds
from watchtower.classify.suspects import odd_ones_out
from watchtower.model import Activity, Evidence, Phase, RunState

_ALL_SPIN = "all spinning"
_ALL_IDLE = "all idle"
_LEAD_IDLE = "rank 0 idle"
_MIXED = "mixed"

# A transfer or a busy host counts as going on for this long after it was last seen (two polls of the slowest interval).
_STILL_GOING_S = 25.0
# A learned pause may last this much longer than it ever did.
_LEARNED_FACTOR, _LEARNED_SLACK_S = 1.5, 30.0
_PAUSING_PHASES = frozenset({Phase.INIT, Phase.EVAL, Phase.CHECKPOINT, Phase.FINISHING})


class Stuck(msgspec.Struct, frozen=True):
    """The pattern of ranks while nobody works."""

    pattern: str
    since: float  # when the last rank stopped working
    spinning: tuple[RankMemory, ...]
    idle: tuple[RankMemory, ...]
    unseen: int


def stuck(run: RunMemory, *, now: float) -> Stuck | None:
    """The pattern of a run in which no visible rank works, or None while one does or none is visible."""
    present = run.present()
    spinning = tuple(rank for rank in present if rank.activity is Activity.SPINNING)
    idle = tuple(rank for rank in present if rank.activity is Activity.IDLE)
    if any(rank.activity is Activity.WORKING for rank in present) or not (spinning or idle):
        return None
    if not idle:
        pattern = _ALL_SPIN
    elif not spinning:
        pattern = _ALL_IDLE
    else:
        pattern = _LEAD_IDLE if [rank.rank for rank in idle] == [0] and len(present) > 2 else _MIXED
    since = max(
        (rank.worked_at if rank.worked_at is not None else rank.activity_since) for rank in (*spinning, *idle)
    )
    return Stuck(pattern, since, spinning, idle, len(present) - len(spinning) - len(idle))


def follow_pauses(run: RunMemory, found: Stuck | None, *, now: float, fault: bool) -> None:
    """Learn how long this run pauses and comes back by itself; a pause that was ever named a fault teaches nothing."""
    if found is not None:
        if run.pause_since is None:
            run.pause_since, run.pause_pattern, run.pause_was_fault = found.since, found.pattern, False
        elif found.pattern != run.pause_pattern and now - run.pause_since < 30.0:
            run.pause_pattern = found.pattern
    run.pause_was_fault = run.pause_was_fault or fault
    if found is not None or run.pause_since is None or run.pause_pattern is None:
        return
    if _came_back(run, run.pause_since, now):
        if not run.pause_was_fault:
            worked = max((rank.working_since or now for rank in run.present()), default=now)
            longest = run.pauses_s.get(run.pause_pattern, 0.0)
            run.pauses_s[run.pause_pattern] = max(longest, min(worked, now) - run.pause_since)
        run.pause_since = run.pause_pattern = None


def _came_back(run: RunMemory, since: float, now: float) -> bool:
    if run.fed:
        return run.step_at is not None and run.step_at > since
    return any(rank.working_since is not None and now - rank.working_since > 30.0 for rank in run.present())


def stalled(run: RunMemory, *, now: float, thresholds: Thresholds) -> Finding | None:
    """Judge a run that has stepped before and whose silence is longer than its own pace, or that has no step feed.

    Returns:
        DEADLOCKED or HUNG once the hold of the pattern is over, None while it runs or a pause explains the silence.
    """
    if run.fed and run.step_at is not None and now - run.step_at <= gap_limit_s(run):
        return None
    found = stuck(run, now=now)
    if found is None:
        return _working_without_steps(run, now=now, thresholds=thresholds)
    hold_s = _hold_s(run, found, now=now, thresholds=thresholds)
    since = found.since if run.step_at is None or not run.fed else max(found.since, run.step_at)
    if now - since < hold_s:
        return None
    return describe(run, found, since=since, now=now)


def _hold_s(run: RunMemory, found: Stuck, *, now: float, thresholds: Thresholds) -> float:
    ranks = (*found.spinning, *found.idle)
    transferring = any(
        _recent(rank.big_io_at, now) and (rank.big_io_at or 0.0) > found.since + 15.0 for rank in ranks
    )
    declared = (
        run.phase in _PAUSING_PHASES and run.phase_at is not None and run.phase_at >= found.since - 120.0
    )
    learned_s = _LEARNED_FACTOR * run.pauses_s.get(found.pattern, 0.0) + _LEARNED_SLACK_S
    if transferring:
        return thresholds.pause_limit_s
    hold_s = thresholds.deadlock_hold_s if run.fed else thresholds.unfed_deadlock_hold_s
    if found.pattern == _ALL_IDLE:
        busy = any(
            _recent(rank.busy_cpu_at, now) and (rank.busy_cpu_at or 0.0) > found.since + 15.0
            for rank in ranks
        )
        hold_s = thresholds.busy_host_hold_s if busy else thresholds.idle_hold_s
    elif found.pattern == _LEAD_IDLE:
        wrote = any(rank.wrote_big for rank in found.idle)
        hold_s = thresholds.silent_save_hold_s if wrote else thresholds.lead_rank_hold_s
    if declared:
        hold_s = max(hold_s, thresholds.busy_host_hold_s)
    if found.pattern in run.pauses_s:
        hold_s = max(hold_s, learned_s)
    return max(hold_s, _after_transfer_s(ranks, found, thresholds))


def _after_transfer_s(ranks: tuple[RankMemory, ...], found: Stuck, thresholds: Thresholds) -> float:
    """A save whose bytes have stopped gets the silent save's hold from its last byte on, not from when steps stopped."""
    last = max((rank.big_io_at or 0.0 for rank in ranks), default=0.0)
    return last - found.since + thresholds.silent_save_hold_s if last > found.since + 15.0 else 0.0


def _recent(moment: float | None, now: float) -> bool:
    return moment is not None and now - moment <= _STILL_GOING_S


def _working_without_steps(run: RunMemory, *, now: float, thresholds: Thresholds) -> Finding | None:
    """Ranks work and no step comes: an evaluation, a long step, one rank busy while the rest wait, or a loop that goes nowhere."""
    if not run.fed or run.step_at is None:
        return None
    working = [rank for rank in run.present() if rank.activity is Activity.WORKING]
    if not working:
        return None
    silent_s = now - run.step_at
    if silent_s < max(
        thresholds.working_stall_s,
        thresholds.pause_limit_s if len(working) < len(run.present()) else 0.0,
        4 * gap_limit_s(run),
    ):
        return None
    return Finding(
        state=RunState.HUNG,
        since=run.step_at,
        reason=f"{len(working)} of {len(run.present())} ranks work and no step came for {duration(silent_s)}",
        suspects=odd_ones_out(run, now=now) if len(working) < len(run.present()) else (),
        evidence=_evidence(run, now),
    )


def describe(run: RunMemory, found: Stuck, *, since: float, now: float) -> Finding:
    """Put the pattern into a state, a sentence and numbers."""
    total = len(found.spinning) + len(found.idle)
    power = _power_words(run, (*found.spinning, *found.idle))
    unseen = f", {found.unseen} not seen" if found.unseen else ""
    silent = (
        f"no step for {duration(now - run.step_at)}"
        if run.fed and run.step_at is not None
        else (
            f"no work for {duration(now - since)}; there is no step feed, so this rests on power and utilization alone"
        )
    )
    if found.spinning:
        what = f"{len(found.spinning)} of {total} ranks at 100 % utilization{power}"
        idle = f", {len(found.idle)} idle" if found.idle else ""
        return Finding(
            state=RunState.DEADLOCKED,
            since=since,
            reason=f"{what}{idle}{unseen}, {silent}",
            suspects=odd_ones_out(run, now=now),
            evidence=_evidence(run, now),
        )
    return Finding(
        state=RunState.HUNG,
        since=since,
        reason=f"all {total} ranks idle with memory held{unseen}, {silent}",
        suspects=odd_ones_out(run, now=now),
        evidence=_evidence(run, now),
    )


def power_share(ranks: tuple[RankMemory, ...] | list[RankMemory]) -> float | None:
    """Mean board power over ranks as a share of their own working power; None before a level is learned."""
    return mean(
        [
            rank.board_power_w / rank.working_w
            for rank in ranks
            if rank.board_power_w is not None and rank.working_w
        ]
    )


def _power_words(run: RunMemory, ranks: tuple[RankMemory, ...]) -> str:
    share = power_share(ranks)
    if share is not None:
        return f", {share * 100:.0f} % of their own working power"
    limits = mean(
        [r.board_power_w / r.power_limit_w for r in ranks if r.board_power_w is not None and r.power_limit_w]
    )
    return f", {limits * 100:.0f} % of the power limit" if limits is not None else ""


def _evidence(run: RunMemory, now: float) -> tuple[Evidence, ...]:
    present = run.present()
    watts = [rank.board_power_w for rank in present if rank.board_power_w is not None]
    working = mean([rank.working_w for rank in present])
    out: list[Evidence] = []
    if watts:
        usual = f", working level {working:.0f} W" if working is not None else ""
        out.append(Evidence("board power", f"{min(watts):.0f}-{max(watts):.0f} W{usual}"))
    for name, values in (
        ("utilization", [rank.util_pct for rank in present]),
        ("memory utilization", [rank.mem_util_pct for rank in present]),
    ):
        average = mean(values)
        if average is not None:
            out.append(Evidence(name, f"{average:.0f} %"))
    if run.fed and run.step_at is not None and run.gaps_s:
        out.append(
            Evidence("usual gap between steps seen", duration(sorted(run.gaps_s)[len(run.gaps_s) // 2]))
        )
    if run.world_size is not None and len(run.ranks) < run.world_size:
        out.append(Evidence("ranks ever seen", f"{len(run.ranks)} of {run.world_size}"))
    moving = sum(rank.io_bytes_per_s or 0.0 for rank in present)
    out.append(Evidence("storage traffic", f"{moving / 1e6:.0f} MB/s"))
    return tuple(out)
