"""An incident's life as people feel it: told once, never healed by blindness, never two at a time."""

import pytest
from msgspec.structs import replace

from tests.fakes.sinks import SUSPECT, T0
from watchtower.alerts.lifecycle import Advance, acknowledge, advance, close
from watchtower.alerts.settings import AlertSettings
from watchtower.model import (
    Incident,
    IncidentPhase,
    Notice,
    NoticeAction,
    RunState,
    Severity,
    Suspect,
    Verdict,
)

SETTINGS = AlertSettings(instance="test")
SEVERITY = {
    RunState.DEADLOCKED: Severity.CRITICAL,
    RunState.HUNG: Severity.CRITICAL,
    RunState.CRASHED: Severity.CRITICAL,
    RunState.SLOW: Severity.WARNING,
    RunState.LINGERING: Severity.WARNING,
    RunState.UNKNOWN: Severity.WARNING,
    RunState.COMPLETED: Severity.INFO,
    RunState.STOPPED: Severity.INFO,
}
OTHER = Suspect(rank=9, node="gpu-b", gpu_index=1, why="silent")


def verdict(state: RunState, at: float, *, since: float | None = None, **changes: object) -> Verdict:
    made = Verdict(
        run_id="r1",
        at=at,
        state=state,
        since=at if since is None else since,
        reason=f"{state} at {at:.0f}",
        severity=SEVERITY.get(state),
    )
    return replace(made, **changes)


def step(incident: Incident | None, state: RunState, at: float, **changes: object) -> Advance:
    since = changes.pop("since", None)
    assert since is None or isinstance(since, float)
    return advance(
        incident, verdict(state, at, since=since, **changes), None, subject="run:r1", settings=SETTINGS
    )


def opened(state: RunState = RunState.DEADLOCKED, at: float = T0, **changes: object) -> Incident:
    incident = step(None, state, at, **changes).incident
    assert incident is not None
    return incident


def actions(notices: tuple[Notice, ...]) -> list[NoticeAction]:
    return [notice.action for notice in notices]


def test_a_fault_opens_one_incident_and_makes_one_trigger() -> None:
    result = step(None, RunState.DEADLOCKED, T0, since=T0 - 94.0, suspects=(SUSPECT,))
    assert result.incident is not None
    assert result.incident.phase is IncidentPhase.FIRING
    assert result.incident.dedup_key.startswith("wt1:")
    assert len(result.incident.dedup_key) == 68
    (notice,) = result.notices
    assert notice.action is NoticeAction.TRIGGER
    assert (notice.since, notice.suspects, notice.seq) == (T0 - 94, (SUSPECT,), 1)


def test_the_same_round_twice_makes_the_same_incident_and_notice() -> None:
    assert step(None, RunState.HUNG, T0) == step(None, RunState.HUNG, T0)


def test_two_watchers_two_subjects_and_two_moments_never_share_a_key() -> None:
    one = verdict(RunState.HUNG, T0)
    later = verdict(RunState.HUNG, T0 + 5)
    keys = {
        result.incident.dedup_key
        for result in (
            advance(None, one, None, subject="run:r1", settings=SETTINGS),
            advance(None, later, None, subject="run:r1", settings=SETTINGS),
            advance(None, one, None, subject="run:r2", settings=SETTINGS),
            advance(None, one, None, subject="run:r1", settings=AlertSettings(instance="other")),
        )
        if result.incident is not None
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    "state", [RunState.STARTING, RunState.PROGRESSING, RunState.COMPLETED, RunState.STOPPED]
)
def test_a_run_that_is_well_or_over_opens_nothing(state: RunState) -> None:
    assert step(None, state, T0) == Advance(None)


def test_a_fault_that_the_judge_still_holds_back_opens_nothing() -> None:
    assert step(None, RunState.HUNG, T0, severity=None) == Advance(None)


def test_a_standing_fault_changes_nothing_and_says_nothing() -> None:
    incident = opened()
    result = step(incident, RunState.DEADLOCKED, T0 + 5, reason="other numbers")
    assert result.incident is incident
    assert result.notices == ()


@pytest.mark.parametrize(("lasting", "told"), [(0.0, 0), (299.9, 0), (300.0, 1), (900.0, 1)])
def test_blindness_is_told_only_after_it_has_lasted(lasting: float, told: int) -> None:
    assert len(step(None, RunState.UNKNOWN, T0, since=T0 - lasting).notices) == told


def test_blindness_without_severity_is_somebody_elses_to_tell() -> None:
    assert step(None, RunState.UNKNOWN, T0, since=T0 - 900.0, severity=None) == Advance(None)


@pytest.mark.parametrize("state", [RunState.DEADLOCKED, RunState.CRASHED, RunState.SLOW])
def test_blindness_never_resolves_and_never_speaks_inside_an_incident(state: RunState) -> None:
    incident = opened(state)
    for minutes in range(60):
        result = step(incident, RunState.UNKNOWN, T0 + 60.0 * minutes, since=T0)
        assert result.notices == ()
        assert result.incident is not None
        incident = result.incident
    assert incident.phase is IncidentPhase.FIRING
    assert incident.state is state


def test_blindness_that_is_somebody_elses_to_tell_resolves_nothing_either() -> None:
    incident = opened()
    for seconds in (5, 300, 900):
        result = step(incident, RunState.UNKNOWN, T0 + seconds, severity=None)
        assert result.incident is incident
        assert result.notices == ()


def test_progress_with_a_severity_is_a_warning_and_heals_nothing() -> None:
    warned = step(None, RunState.PROGRESSING, T0, severity=Severity.WARNING)
    assert actions(warned.notices) == [NoticeAction.TRIGGER]
    incident: Incident | None = opened(RunState.HUNG)
    for seconds in range(5, 600, 5):
        incident = step(incident, RunState.PROGRESSING, T0 + seconds, severity=Severity.WARNING).incident
    assert incident is not None
    assert incident.phase is IncidentPhase.FIRING
    incident = step(incident, RunState.PROGRESSING, T0 + 600).incident
    assert actions(step(incident, RunState.PROGRESSING, T0 + 720).notices) == [NoticeAction.RESOLVE]


def test_blindness_ends_a_recovery_so_that_good_must_be_seen_without_a_break() -> None:
    incident = step(opened(), RunState.PROGRESSING, T0 + 10).incident
    incident = step(incident, RunState.UNKNOWN, T0 + 100).incident
    result = step(incident, RunState.PROGRESSING, T0 + 140)
    assert result.notices == ()
    assert result.incident is not None
    assert result.incident.recovering_since == T0 + 140


def test_an_incident_of_blindness_becomes_a_fault_by_an_update_that_raises_it() -> None:
    incident = opened(RunState.UNKNOWN, since=T0 - 300.0)
    result = step(incident, RunState.DEADLOCKED, T0 + 30)
    assert actions(result.notices) == [NoticeAction.UPDATE]
    assert result.notices[0].severity is Severity.CRITICAL


@pytest.mark.parametrize(("good_for", "resolved"), [(0.0, False), (119.9, False), (120.0, True)])
def test_good_for_the_whole_keep_resolves_and_not_a_moment_sooner(good_for: float, resolved: bool) -> None:
    incident = step(opened(), RunState.PROGRESSING, T0 + 10).incident
    result = step(incident, RunState.PROGRESSING, T0 + 10 + good_for)
    assert result.incident is not None
    assert (result.incident.phase is IncidentPhase.RESOLVED) is resolved
    assert actions(result.notices) == ([NoticeAction.RESOLVE] if resolved else [])
    if resolved:
        assert result.incident.resolve_reason == "recovered"
        assert result.notices[0].since == T0


def test_a_relapse_within_keep_goes_back_to_firing_silently() -> None:
    incident = step(opened(), RunState.PROGRESSING, T0 + 10).incident
    result = step(incident, RunState.DEADLOCKED, T0 + 60)
    assert result.notices == ()
    assert result.incident is not None
    assert result.incident.phase is IncidentPhase.FIRING
    assert result.incident.recovering_since is None


def test_a_relapse_into_another_fault_is_an_update() -> None:
    incident = step(opened(RunState.HUNG), RunState.PROGRESSING, T0 + 10).incident
    assert actions(step(incident, RunState.CRASHED, T0 + 60).notices) == [NoticeAction.UPDATE]


def test_keep_zero_resolves_in_the_first_good_round() -> None:
    result = advance(
        opened(),
        verdict(RunState.PROGRESSING, T0 + 5),
        None,
        subject="run:r1",
        settings=AlertSettings(instance="test", keep_s=0.0),
    )
    assert actions(result.notices) == [NoticeAction.RESOLVE]


@pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.STOPPED])
def test_the_end_of_a_run_resolves_at_once_with_that_reason(state: RunState) -> None:
    result = step(opened(RunState.LINGERING), state, T0 + 5)
    assert result.incident is not None
    assert result.incident.resolve_reason == state.value
    assert actions(result.notices) == [NoticeAction.RESOLVE]


def test_a_crash_is_not_healed_by_starting_again_but_by_progress() -> None:
    incident: Incident | None = opened(RunState.CRASHED)
    for minute in range(1, 20):
        result = step(incident, RunState.STARTING, T0 + 60 * minute)
        assert result.notices == ()
        incident = result.incident
    assert incident is not None
    assert incident.phase is IncidentPhase.RECOVERING
    incident = step(incident, RunState.PROGRESSING, T0 + 1200).incident
    assert actions(step(incident, RunState.PROGRESSING, T0 + 1320).notices) == [NoticeAction.RESOLVE]


def test_a_crash_after_a_restart_that_never_progressed_is_the_same_incident() -> None:
    incident = step(opened(RunState.CRASHED), RunState.STARTING, T0 + 60).incident
    result = step(incident, RunState.CRASHED, T0 + 600)
    assert result.notices == ()
    assert result.incident == opened(RunState.CRASHED)


def test_a_deadlock_is_healed_by_a_restart_that_stays() -> None:
    incident = step(opened(RunState.DEADLOCKED), RunState.STARTING, T0 + 60).incident
    assert actions(step(incident, RunState.STARTING, T0 + 180).notices) == [NoticeAction.RESOLVE]


def test_a_run_that_is_forgotten_closes_its_incident_once() -> None:
    result = close(opened(RunState.CRASHED), at=T0 + 86_400, reason="forgotten")
    assert actions(result.notices) == [NoticeAction.RESOLVE]
    assert result.incident is not None
    assert result.incident.resolve_reason == "forgotten"
    assert close(result.incident, at=T0 + 90_000, reason="forgotten").notices == ()


def test_severity_rises_and_never_falls_inside_one_incident() -> None:
    incident = opened(RunState.SLOW)
    up = step(incident, RunState.DEADLOCKED, T0 + 60)
    assert actions(up.notices) == [NoticeAction.UPDATE]
    assert up.notices[0].severity is Severity.CRITICAL
    down = step(up.incident, RunState.SLOW, T0 + 120)
    assert actions(down.notices) == [NoticeAction.UPDATE]
    assert down.notices[0].severity is Severity.CRITICAL
    assert down.notices[0].state is RunState.SLOW


def test_an_acknowledgement_stays_until_the_severity_rises() -> None:
    incident = acknowledge(opened(RunState.SLOW), by="jlee", at=T0 + 5)
    lingering = step(incident, RunState.LINGERING, T0 + 60).incident
    assert lingering is not None
    assert lingering.acked_by == "jlee"
    hung = step(lingering, RunState.HUNG, T0 + 120).incident
    assert hung is not None
    assert hung.acked_by is None
    assert hung.acked_at is None


def test_new_suspects_are_told_at_most_once_a_minute_for_ever() -> None:
    incident: Incident | None = opened(suspects=(SUSPECT,))
    told: list[float] = []
    for seconds in range(5, 3 * 3600, 5):
        # An hour of quiet first: it must not save up allowance for a burst.
        culprit = SUSPECT if seconds < 3600 or seconds % 10 else OTHER
        result = step(incident, RunState.DEADLOCKED, T0 + seconds, suspects=(culprit,))
        told += [T0 + seconds] * len(result.notices)
        incident = result.incident
    minutes = [int(at - T0) // 60 for at in told]
    assert len(told) > 100
    assert len(minutes) == len(set(minutes))


def test_the_same_suspects_in_other_words_or_order_are_no_news() -> None:
    incident = opened(suspects=(SUSPECT, OTHER))
    again = (OTHER, replace(SUSPECT, why="stopped working 5 s before the others"))
    assert step(incident, RunState.DEADLOCKED, T0 + 600, suspects=again).notices == ()


def test_a_suspect_found_later_is_told_when_the_minute_is_over() -> None:
    incident = opened()
    assert step(incident, RunState.DEADLOCKED, T0 + 55, suspects=(SUSPECT,)).notices == ()
    (notice,) = step(incident, RunState.DEADLOCKED, T0 + 60, suspects=(SUSPECT,)).notices
    assert notice.suspects == (SUSPECT,)


def test_an_incident_of_a_node_or_the_watcher_belongs_to_no_run() -> None:
    result = advance(None, verdict(RunState.HUNG, T0), None, subject="node:gpu-a", settings=SETTINGS)
    assert result.incident is not None
    assert result.incident.run_id is None
    assert result.notices[0].run_id is None


@pytest.mark.parametrize(
    ("key", "value"), [("keep_s", -1.0), ("unknown_after_s", -0.1), ("suspects_every_s", 0.0)]
)
def test_a_time_that_cannot_work_is_refused_with_its_key(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=key):
        AlertSettings(**{key: value})  # type: ignore[arg-type]
