"""What one question answers with: a state, since when, and why. Decides nothing."""

import msgspec

from watchtower.model import Evidence, RunState, Severity, Suspect

SEVERITY: dict[RunState, Severity | None] = {
    RunState.STARTING: None,
    RunState.PROGRESSING: None,
    RunState.COMPLETED: None,
    RunState.STOPPED: None,
    RunState.SLOW: Severity.WARNING,
    RunState.LINGERING: Severity.WARNING,
    RunState.UNKNOWN: Severity.WARNING,
    RunState.DEADLOCKED: Severity.CRITICAL,
    RunState.HUNG: Severity.CRITICAL,
    RunState.CRASHED: Severity.CRITICAL,
}

FAULTS = frozenset({RunState.DEADLOCKED, RunState.HUNG, RunState.CRASHED})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one question about a run, where it has one."""

    state: RunState
    since: float
    reason: str
    suspects: tuple[Suspect, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    severity: Severity | None = None  # None: what the state implies


def duration(seconds: float) -> str:
    """A length of time as a person says it: `4.7 s`, `94 s`, `12 min`, `3 h 05 min`."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
