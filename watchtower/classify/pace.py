"""Asks whether a run that steps is slow: below its configured floor, or well below its own usual pace."""

from fnmatch import fnmatchcase

from watchtower.classify.finding import Finding, duration
from watchtower.classify.memory import RunMemory
from watchtower.classify.progress import quantile
from watchtower.classify.settings import RunRule, Thresholds
from watchtower.classify.suspects import stragglers
from watchtower.model import Evidence, RunState, Throughput

_RECENT_S = 150.0
_LEAST_RECENT = 4
_LEAST_HISTORY = 20


class FloorError(ValueError):
    """A throughput floor that cannot be read; the message says what is wrong with it."""


def parse_floor(text: str) -> Throughput:
    """Read a floor such as `9000 tokens/s`, `0.5 steps/s` or `120 samples/s`; it is of the whole run.

    Raises:
        FloorError: not a positive number and one of these units.
    """
    number, _, unit = text.strip().partition(" ")
    unit = unit.strip()
    try:
        value = float(number.replace("_", "").replace(",", ""))
    except ValueError:
        raise FloorError(f'{text!r} does not start with a number; write it like "9000 tokens/s"') from None
    if unit not in {"tokens/s", "samples/s", "steps/s"}:
        raise FloorError(f"{text!r} needs a unit: tokens/s, samples/s or steps/s")
    if not value > 0 or value == float("inf"):
        raise FloorError(f"{text!r} is not a positive number")
    return Throughput(value, unit, "run")


def rule_for(run: RunMemory, rules: tuple[RunRule, ...]) -> RunRule | None:
    """The first rule whose pattern matches the run's id or name."""
    for rule in rules:
        if fnmatchcase(run.run_id, rule.match) or (
            run.run_name is not None and fnmatchcase(run.run_name, rule.match)
        ):
            return rule
    return None


def slow(run: RunMemory, *, now: float, thresholds: Thresholds, rule: RunRule | None) -> Finding | None:
    """SLOW once the run has been below its floor, or below `slow_share` of its own pace, for the hold; None otherwise."""
    return _below_floor(run, now=now, thresholds=thresholds, rule=rule) or _below_own_pace(
        run, now=now, thresholds=thresholds
    )


def _below_floor(
    run: RunMemory, *, now: float, thresholds: Thresholds, rule: RunRule | None
) -> Finding | None:
    if rule is None or rule.throughput_floor is None:
        return None
    floor = parse_floor(rule.throughput_floor)
    value = current_throughput(run, unit=floor.unit, now=now)
    if value is None:
        return None
    if value >= floor.value:
        run.below_floor_since = None
        return None
    if run.below_floor_since is None:
        run.below_floor_since = run.pace_at[-min(len(run.pace_at), _LEAST_RECENT)] if run.pace_at else now
    if now - run.below_floor_since < thresholds.slow_hold_s:
        return None
    return Finding(
        state=RunState.SLOW,
        since=run.below_floor_since,
        reason=f"{value:.4g} {floor.unit}, below its floor of {floor.value:.4g} {floor.unit} for {duration(now - run.below_floor_since)}",
        suspects=stragglers(run),
        evidence=(
            Evidence("throughput", f"{value:.4g} {floor.unit}"),
            Evidence("floor", f"{floor.value:.4g} {floor.unit}"),
        ),
    )


def current_throughput(run: RunMemory, *, unit: str, now: float) -> float | None:
    """The whole run's recent throughput in one unit, or None where it is not known in that unit."""
    if unit == "steps/s":
        recent = _recent_paces(run, now)
        return 1.0 / quantile(recent, 0.5) if len(recent) >= _LEAST_RECENT else None
    said = run.throughput
    if said is None or said.unit != unit:
        return None
    values = [value for at, value in run.throughputs if now - at <= _RECENT_S] or [
        v for _, v in run.throughputs[-_LEAST_RECENT:]
    ]
    value = quantile(values, 0.5)
    return value * len(run.present()) if said.scope == "gpu" else value


def _recent_paces(run: RunMemory, now: float) -> list[float]:
    recent = [pace for at, pace in zip(run.pace_at, run.paces_s, strict=True) if now - at <= _RECENT_S]
    return recent if len(recent) >= _LEAST_RECENT else run.paces_s[-_LEAST_RECENT:]


def _slow_from(run: RunMemory, slow_pace_s: float) -> float:
    """When the newest unbroken stretch of slow entries began: the entry before its first one."""
    index = len(run.paces_s)
    while index > 0 and run.paces_s[index - 1] > slow_pace_s:
        index -= 1
    return run.pace_at[max(0, index - 1)] if run.pace_at else 0.0


def _below_own_pace(run: RunMemory, *, now: float, thresholds: Thresholds) -> Finding | None:
    if len(run.paces_s) < _LEAST_HISTORY:
        return None
    recent = quantile(_recent_paces(run, now), 0.5)
    usual = run.usual_pace_s if run.usual_pace_s is not None else quantile(run.paces_s, 0.5)
    # Long reinforcement-learning steps vary several times over: slow means slower than nearly all of the run's own past.
    rarely = quantile(run.paces_s[: -len(_recent_paces(run, now))] or run.paces_s, 0.9)
    if recent * thresholds.slow_share <= usual or (run.slow_since is None and recent <= rarely):
        run.usual_pace_s = quantile(run.paces_s, 0.5)
        run.slow_since = None
        return None
    if run.slow_since is None:
        run.slow_since = _slow_from(run, usual / thresholds.slow_share)
        run.usual_pace_s = usual
    if now - run.slow_since < thresholds.slow_hold_s:
        return None
    share = usual / recent
    return Finding(
        state=RunState.SLOW,
        since=run.slow_since,
        reason=f"{recent:.3g} s per step against its usual {usual:.3g} s ({share * 100:.0f} % of its own pace) for {duration(now - run.slow_since)}",
        suspects=stragglers(run),
        evidence=(Evidence("step time", f"{recent:.3g} s"), Evidence("usual step time", f"{usual:.3g} s")),
    )
