"""Asks whether the run's processes and boards are there: gone, ended well, stopped by a person, lost with their GPU. Watts are not asked."""

from watchtower.classify.finding import Finding, duration
from watchtower.classify.memory import RankMemory, RunMemory
from watchtower.classify.settings import Thresholds
from watchtower.model import Activity, Evidence, Phase, RunState, Severity, Suspect

_SIGTERM = 15
# 128 + SIGTERM, as a shell or a container runtime reports it.
_TERMINATED_CODES = frozenset({143, -15})
# Ranks that were told to stop because another one had failed: victims, not causes (SIGTERM, SIGABRT of a collective's watchdog).
_VICTIM_SIGNALS = frozenset({15, 6})


def left(run: RunMemory, *, now: float, thresholds: Thresholds) -> Finding | None:
    """What it means that every process of the run has left, or None while one is there or the hold still runs."""
    if not run.ranks or run.present():
        return None
    gone_at = max(rank.gone_at or 0.0 for rank in run.ranks.values())
    if now - gone_at < thresholds.gone_hold_s:
        return None
    since = min((rank.gone_at or now) for rank in run.ranks.values())
    exits = [rank.exit for rank in run.ranks.values() if rank.exit is not None]
    failed = [rank for rank in run.ranks.values() if _failed(rank)]
    if failed and not (run.finished_at is not None and run.phase is Phase.FINISHED):
        culprits = _roots(failed)
        return Finding(
            state=RunState.CRASHED,
            since=since,
            reason=f"all {len(run.ranks)} ranks left, {_exit_words(culprits[0])} first{_step_words(run)}",
            suspects=_suspects(culprits, len(run.ranks)),
            evidence=(Evidence("exits that failed", f"{len(failed)} of {len(run.ranks)} ranks"),),
        )
    if run.finished_at is not None or _at_the_end(run):
        return Finding(
            state=RunState.COMPLETED, since=since, reason=f"finished its work and left{_step_words(run)}"
        )
    if exits and all(_terminated(rank) for rank in run.ranks.values() if rank.exit is not None):
        return Finding(
            state=RunState.STOPPED,
            since=since,
            reason=f"every rank was told to stop (SIGTERM){_step_words(run)}; by whom is not known",
        )
    if exits and all(exit_.exit_code == 0 for exit_ in exits):
        return Finding(
            state=RunState.COMPLETED,
            since=since,
            reason=f"every rank left with exit code 0{_step_words(run)}",
        )
    if run.step is None and not run.ever_worked:
        return Finding(state=RunState.STOPPED, since=since, reason="left without ever having trained")
    return Finding(
        state=RunState.CRASHED,
        since=since,
        reason=f"all {len(run.ranks)} ranks are gone and nothing said that the work was finished{_step_words(run)}",
    )


def some_gone(run: RunMemory, *, now: float, thresholds: Thresholds) -> Finding | None:
    """Ranks that are gone while others stay, beyond the hold; a warning while steps go on, a crash once they do not."""
    gone = [rank for rank in run.ranks.values() if not rank.present]
    if not gone or not run.present() or run.finished_at is not None:
        return None
    since = min(rank.gone_at or now for rank in gone)
    if now - since < thresholds.gone_hold_s:
        return None
    culprits = _roots(gone)
    names = _exit_words(culprits[0])
    if (
        run.step_at is not None
        and run.step_at > since + 1.0
        and now - run.step_at < max(60.0, 3 * (run.usual_pace_s or 0.0))
    ):
        return Finding(
            state=RunState.PROGRESSING,
            since=since,
            severity=Severity.WARNING,
            reason=f"{len(gone)} of {len(run.ranks)} ranks are gone ({names}) and steps go on",
            suspects=_suspects(culprits, len(run.ranks)),
        )
    silent = duration(now - run.step_at) if run.step_at is not None else None
    return Finding(
        state=RunState.CRASHED,
        since=since,
        reason=f"{len(gone)} of {len(run.ranks)} ranks are gone ({names})"
        + (f", no step for {silent}" if silent else ""),
        suspects=_suspects(culprits, len(run.ranks)),
        evidence=(Evidence("ranks left behind", str(len(run.present()))),),
    )


def gpu_lost(run: RunMemory, *, now: float, thresholds: Thresholds) -> Finding | None:
    """A rank whose GPU is off the bus while its process lives and steps have stopped."""
    lost = [rank for rank in run.present() if rank.gpu_lost_at is not None]
    if not lost:
        return None
    since = min(rank.gpu_lost_at or now for rank in lost)
    if now - since < thresholds.lost_hold_s or (run.step_at is not None and run.step_at > since + 10.0):
        return None
    xids = {event.code for event in run.events if event.kind == "xid" and event.code is not None}
    why = "its GPU is lost" + (f" (Xid {', '.join(map(str, sorted(xids)))})" if xids else "")
    return Finding(
        state=RunState.CRASHED,
        since=since,
        reason=f"{_names(lost)}: {why}; the process is still there",
        suspects=tuple(Suspect(rank.rank, rank.node, rank.gpu_index, why) for rank in lost),
        evidence=(Evidence("GPU lost", f"{duration(now - since)} ago"),),
    )


def suspended(run: RunMemory, *, now: float) -> Finding | None:
    """Every rank in state T: somebody stopped them on purpose (SIGSTOP, a debugger)."""
    present = run.present()
    if not present or any(rank.proc_state not in {"T", "t"} for rank in present):
        return None
    return Finding(
        state=RunState.STOPPED,
        since=max(rank.worked_at or rank.first_seen_at for rank in present),
        reason=f"all {len(present)} processes are suspended (state T){_step_words(run)}",
    )


def finished(run: RunMemory, *, now: float, thresholds: Thresholds) -> Finding | None:
    """The run said that its work is done, and processes are still there: tearing down, or lingering beyond the allowance.

    A trainer's end mark alone (`finishing`) comes before its last save. It counts once every board is idle: an upload or a
    teardown looks like that, a save that hangs in a collective does not.
    """
    present = run.present()
    if run.finished_at is None or not present:
        return None
    ended = run.phase is Phase.FINISHED or all(rank.activity is Activity.IDLE for rank in present)
    if not ended:
        return None
    held = now - run.finished_at
    staying = len(present)
    if held < thresholds.linger_allowance_s:
        return Finding(
            state=RunState.PROGRESSING,
            since=run.since if run.state is RunState.PROGRESSING else run.finished_at,
            reason=f"finished its work {duration(held)} ago, {staying} processes are tearing down",
        )
    return Finding(
        state=RunState.LINGERING,
        since=run.finished_at,
        reason=f"finished its work {duration(held)} ago and still holds {staying} GPUs",
        evidence=(Evidence("GPU-hours held since it finished", f"{staying * held / 3600:.1f}"),),
    )


def _failed(rank: RankMemory) -> bool:
    exit_ = rank.exit
    if exit_ is None:
        return False
    return (
        bool(exit_.oom_killed)
        or (exit_.signal not in {None, _SIGTERM})
        or exit_.exit_code not in {None, 0, *_TERMINATED_CODES}
    )


def _terminated(rank: RankMemory) -> bool:
    exit_ = rank.exit
    return exit_ is not None and (exit_.signal == _SIGTERM or exit_.exit_code in _TERMINATED_CODES)


def _roots(gone: list[RankMemory]) -> list[RankMemory]:
    """Of those that are gone, the ones that explain the rest: no victims where there is a cause, else whoever left first."""
    causes = [r for r in gone if _failed(r) and (r.exit is None or r.exit.signal not in _VICTIM_SIGNALS)]
    ordered = sorted(causes or gone, key=lambda rank: rank.gone_at or 0.0)
    first = ordered[0].gone_at or 0.0
    return [rank for rank in ordered if (rank.gone_at or 0.0) - first < 1.0] if causes else ordered


def _suspects(ranks: list[RankMemory], of: int) -> tuple[Suspect, ...]:
    if len(ranks) > max(1, of // 2) or len(ranks) == of:
        return ()
    return tuple(Suspect(r.rank, r.node, r.gpu_index, _exit_words(r)) for r in ranks)


def _exit_words(rank: RankMemory) -> str:
    who = f"rank {rank.rank}" if rank.rank is not None else f"process {rank.pid} on {rank.node}"
    exit_ = rank.exit
    if exit_ is None:
        return f"{who} gone, exit not seen"
    if exit_.oom_killed:
        return f"{who} killed by the kernel for lack of host memory"
    if exit_.signal is not None:
        return f"{who} ended by signal {exit_.signal}"
    return f"{who} ended with exit code {exit_.exit_code}" if exit_.exit_code is not None else f"{who} gone"


def _names(ranks: list[RankMemory]) -> str:
    return ", ".join(f"rank {rank.rank} on {rank.node}" for rank in ranks[:4]) + (
        " …" if len(ranks) > 4 else ""
    )


def _at_the_end(run: RunMemory) -> bool:
    return run.step is not None and run.total_steps is not None and run.step >= run.total_steps


def _step_words(run: RunMemory) -> str:
    if run.step is None:
        return ""
    return f" at step {run.step}" + (f" of {run.total_steps}" if run.total_steps else "")
