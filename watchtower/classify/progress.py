"""Turns what trainers say into one completed-step counter, its usual gap and pace. A repeated step, a line or a heartbeat is not progress."""

from watchtower.classify.finding import FAULTS
from watchtower.classify.memory import RunMemory
from watchtower.model import EventReading, Phase, ProgressReading, Throughput

_KEEP = 64
_KEEP_PACES = 240
# With fewer entries than this the usual gap is not known yet.
_FEW = 3
_FIRST_GAP_LIMIT_S = 120.0
_LEAST_SLACK_S = 20.0
_GAP_FACTOR = 2.5


def take_progress(run: RunMemory, said: ProgressReading) -> None:
    """Take in one thing that a trainer said."""
    run.fed = run.fed or said.step is not None
    if said.total_steps is not None:
        run.total_steps = said.total_steps
    if said.phase is not None and (run.phase_at is None or said.at >= run.phase_at):
        _take_phase(run, said.phase, said.at)
    if said.step is not None:
        _take_step(run, said.step, said.at)
        if (
            said.throughput is not None
            and said.throughput_unit
            and said.step == run.step
            and said.at == run.step_at
        ):
            run.throughput = Throughput(said.throughput, said.throughput_unit, said.throughput_scope or "run")
            run.throughputs.append((said.at, said.throughput))
            del run.throughputs[:-_KEEP]


def _take_phase(run: RunMemory, phase: Phase, at: float) -> None:
    if run.phase is Phase.CHECKPOINT and phase in {Phase.TRAIN, Phase.EVAL, Phase.FINISHED}:
        run.last_checkpoint_at, run.last_checkpoint_step = at, run.step
    if phase is not run.phase:
        run.phase, run.phase_at = phase, at
    if phase in {Phase.FINISHED, Phase.FINISHING} and run.finished_at is None:
        run.finished_at = at


def _take_step(run: RunMemory, step: int, at: float) -> None:
    began = run.replaced_at
    if run.step is not None and step < run.step and began is not None and run.started_at < began <= at:
        restart(run, began)  # new processes, and steps begin again further back
    if run.step is None or run.step_at is None:
        run.step, run.step_at = step, at
    elif step > run.step and at > run.step_at:
        if run.state not in FAULTS:  # how long a fault lasted is nobody's pace
            _learn_gap(run, at - run.step_at, steps=step - run.step, at=at)
        run.step, run.step_at = step, at
        run.finished_at = None if run.phase not in {Phase.FINISHED, Phase.FINISHING} else run.finished_at
    elif step > run.step:
        run.step = step
    if run.highest_step is None or step > run.highest_step:
        run.highest_step, run.highest_step_at = step, at


def _learn_gap(run: RunMemory, gap_s: float, *, steps: int, at: float) -> None:
    run.gaps_s.append(gap_s)
    run.paces_s.append(gap_s / steps)
    run.pace_at.append(at)
    del run.gaps_s[:-_KEEP], run.paces_s[:-_KEEP_PACES], run.pace_at[:-_KEEP_PACES]


def restart(run: RunMemory, at: float) -> None:
    """Forget what belongs to the attempt that ended; what was learned of the run stays."""
    run.restarts += 1
    run.started_at = at
    run.step = run.step_at = None
    run.gaps_s.clear()
    run.phase = run.phase_at = run.finished_at = None
    run.slow_since = run.below_floor_since = None
    run.pause_since = run.pause_pattern = None
    run.fault_step = None


def take_event(run: RunMemory, event: EventReading) -> None:
    """Keep what may explain a fault later, and note finished checkpoints and known timeouts."""
    if event.kind == "checkpoint_saved":
        if run.last_checkpoint_at is None or event.at > run.last_checkpoint_at:
            run.last_checkpoint_at = event.at
            run.last_checkpoint_step = event.code if event.code is not None else run.step
        return
    if event.kind == "collective_timeout":
        # Groups may differ; the shortest limit strikes first.
        if event.code is not None and (
            run.collective_timeout_s is None or event.code < run.collective_timeout_s
        ):
            run.collective_timeout_s = float(event.code)
        return
    run.events.append(event)
    del run.events[:-32]


def gap_limit_s(run: RunMemory) -> float:
    """How long this run may say nothing before its silence means something: its own usual gap, several times over."""
    gaps = run.gaps_s
    if len(gaps) < _FEW:
        return max(_FIRST_GAP_LIMIT_S, *(3 * gap for gap in gaps)) if gaps else _FIRST_GAP_LIMIT_S
    usual = quantile(gaps, 0.9)
    return max(_GAP_FACTOR * usual, usual + _LEAST_SLACK_S)


def pace_s(run: RunMemory) -> float | None:
    """The run's usual seconds per step, or None until a few are known."""
    return (
        run.usual_pace_s
        if run.usual_pace_s is not None
        else quantile(run.paces_s, 0.5)
        if len(run.paces_s) >= _FEW
        else None
    )


def quantile(values: list[float], q: float) -> float:
    """The q-quantile of a non-empty list, without interpolation."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
