"""Turns one verdict a round into an incident's life and the notices it makes: open, change, recover, resolve. No clock, no I/O, no sinks.

Faults were already held back by the judge: a severity on a verdict means "tell now". Only `unknown` is held here.
"""

import hashlib

import msgspec
from msgspec.structs import replace

from watchtower.alerts.settings import AlertSettings
from watchtower.model import (
    SEVERITY_RANK,
    Incident,
    IncidentPhase,
    Notice,
    NoticeAction,
    RunState,
    RunView,
    Severity,
    Suspect,
    Verdict,
)

_ENDED = {RunState.COMPLETED, RunState.STOPPED}
_GOOD = {RunState.PROGRESSING, RunState.STARTING}


class Advance(msgspec.Struct, frozen=True):
    """What one round did to a subject's incident.

    `incident` is None where there is none; a resolved one is returned once, to be recorded, and not handed in again. It is
    the very object that was handed in when nothing changed, so `is` tells whether there is anything to write.
    """

    incident: Incident | None
    notices: tuple[Notice, ...] = ()


def advance(
    incident: Incident | None,
    verdict: Verdict,
    view: RunView | None,
    *,
    subject: str,
    settings: AlertSettings,
) -> Advance:
    """Judge what this round's verdict means for the subject's incident.

    Args:
        incident: the subject's open incident, None (or a resolved one) where there is none.
        verdict: this round's.
        view: the run as it is now, for the message; None for a node or the watcher.
        subject: "run:<run_id>", "nodes" or "watcher".
        settings: the holds.

    Returns:
        The incident afterwards and at most one notice. The same arguments give the same result.
    """
    if incident is None or incident.phase is IncidentPhase.RESOLVED:
        return _perhaps_open(verdict, view, subject, settings)
    if verdict.state in _ENDED:
        return _resolve(incident, verdict, view, verdict.state.value)
    if _is_good(verdict):
        return _recover(incident, verdict, view, settings)
    if _tells(verdict, settings) and (
        verdict.state is not RunState.UNKNOWN or incident.state is RunState.UNKNOWN
    ):
        return _go_on(incident, verdict, view, settings)
    # Not good, and nothing to add: blindness, or a fault still inside its hold. It only ends a recovery.
    return Advance(_firing(incident))


def close(incident: Incident, *, at: float, reason: str, view: RunView | None = None) -> Advance:
    """Resolve an open incident for a reason that is not a verdict: the run was forgotten, a rule removed, a person closed it.

    Args:
        incident: an open one; a resolved one is given back without a notice.
        at: now, Unix seconds.
        reason: one word or short phrase that people read, such as "forgotten".
        view: the run as it was last seen.
    """
    if incident.phase is IncidentPhase.RESOLVED:
        return Advance(incident)
    last = Verdict(
        run_id=incident.run_id or "",
        at=at,
        state=incident.state,
        since=incident.since,
        reason=f"closed: {reason}",
        severity=None,
        suspects=incident.suspects,
    )
    return _resolve(incident, last, view, reason)


def acknowledge(incident: Incident, *, by: str, at: float) -> Incident:
    """Note that a person has taken this on; it holds until the incident ends or its severity rises."""
    return replace(incident, acked_by=by, acked_at=at)


def _is_good(verdict: Verdict) -> bool:
    # Steps that go on without some of the ranks are `progressing` with a severity: a warning, not health.
    return verdict.state in _GOOD and verdict.severity is None


def _tells(verdict: Verdict, settings: AlertSettings) -> bool:
    if verdict.severity is None:
        return False
    held = verdict.at - verdict.since < settings.unknown_after_s
    return not (verdict.state is RunState.UNKNOWN and held)


def _perhaps_open(verdict: Verdict, view: RunView | None, subject: str, settings: AlertSettings) -> Advance:
    if verdict.state in _ENDED or _is_good(verdict) or not _tells(verdict, settings):
        return Advance(None)
    name = hashlib.sha256(f"{settings.instance}\0{subject}\0{verdict.at!r}".encode()).hexdigest()
    opened = Incident(
        uid=name[:16],
        subject=subject,
        run_id=verdict.run_id if subject.startswith("run:") else None,
        phase=IncidentPhase.FIRING,
        severity=verdict.severity or Severity.WARNING,
        state=verdict.state,
        opened_at=verdict.at,
        since=verdict.since,
        reason=verdict.reason,
        suspects=verdict.suspects,
        # wt1 names this way of making keys. It changes only on purpose: a key that changes orphans an open incident.
        dedup_key=f"wt1:{name}",
        seq=1,
        fired_at=verdict.at,
        suspects_told_at=verdict.at,
    )
    return Advance(opened, (_notice(opened, NoticeAction.TRIGGER, verdict, view),))


def _go_on(incident: Incident, verdict: Verdict, view: RunView | None, settings: AlertSettings) -> Advance:
    severity = max(incident.severity, verdict.severity or incident.severity, key=SEVERITY_RANK.__getitem__)
    raised = severity is not incident.severity
    new_state = verdict.state is not incident.state
    new_suspects = _who(verdict.suspects) != _who(incident.suspects)
    if not (raised or new_state or (new_suspects and _suspects_due(incident, verdict.at, settings))):
        return Advance(_firing(incident))
    changed = replace(
        _firing(incident),
        severity=severity,
        state=verdict.state,
        reason=verdict.reason,
        suspects=verdict.suspects,
        seq=incident.seq + 1,
        suspects_told_at=verdict.at if new_suspects else incident.suspects_told_at,
        acked_by=None if raised else incident.acked_by,
        acked_at=None if raised else incident.acked_at,
    )
    return Advance(changed, (_notice(changed, NoticeAction.UPDATE, verdict, view),))


def _recover(incident: Incident, verdict: Verdict, view: RunView | None, settings: AlertSettings) -> Advance:
    # A crashed run that has started again has not shown yet that it works: only progress closes its incident.
    proven = verdict.state is RunState.PROGRESSING or incident.state is not RunState.CRASHED
    good_since = incident.recovering_since if proven else None
    if proven and good_since is None:
        good_since = verdict.at
    if incident.phase is not IncidentPhase.RECOVERING or good_since != incident.recovering_since:
        incident = replace(incident, phase=IncidentPhase.RECOVERING, recovering_since=good_since)
    if good_since is None or verdict.at - good_since < settings.keep_s:
        return Advance(incident)
    return _resolve(incident, verdict, view, "recovered")


def _resolve(incident: Incident, verdict: Verdict, view: RunView | None, reason: str) -> Advance:
    closed = replace(
        incident,
        phase=IncidentPhase.RESOLVED,
        seq=incident.seq + 1,
        resolved_at=verdict.at,
        resolve_reason=reason,
    )
    return Advance(closed, (_notice(closed, NoticeAction.RESOLVE, verdict, view),))


def _firing(incident: Incident) -> Incident:
    if incident.phase is IncidentPhase.FIRING:
        return incident
    return replace(incident, phase=IncidentPhase.FIRING, recovering_since=None)


def _suspects_due(incident: Incident, at: float, settings: AlertSettings) -> bool:
    told_at = incident.suspects_told_at if incident.suspects_told_at is not None else incident.fired_at
    return told_at is None or at - told_at >= settings.suspects_every_s


def _who(suspects: tuple[Suspect, ...]) -> frozenset[tuple[int | None, str, int | None]]:
    # Not `why`: its numbers change each round and are no news.
    return frozenset((suspect.rank, suspect.node, suspect.gpu_index) for suspect in suspects)


def _notice(incident: Incident, action: NoticeAction, verdict: Verdict, view: RunView | None) -> Notice:
    resolve = action is NoticeAction.RESOLVE
    return Notice(
        incident_uid=incident.uid,
        seq=incident.seq,
        action=action,
        severity=incident.severity,
        state=verdict.state,
        at=verdict.at,
        since=incident.since if resolve else verdict.since,
        subject=incident.subject,
        run_id=incident.run_id,
        dedup_key=incident.dedup_key,
        reason=verdict.reason,
        suspects=verdict.suspects,
        evidence=verdict.evidence,
        view=view,
    )
