"""Who is told what: a sink's first message about an incident is a trigger, and only whoever was told hears that it is over."""

from msgspec.structs import replace

from tests.fakes.sinks import T0, a_notice
from watchtower.alerts.owing import owed
from watchtower.alerts.settings import Route
from watchtower.model import Incident, IncidentPhase, NoticeAction, RunState, Severity

ROUTES = (Route("slack", Severity.WARNING), Route("pagerduty", Severity.CRITICAL))
INCIDENT = Incident(
    uid="0123456789abcdef",
    subject="run:r1",
    run_id="r1",
    phase=IncidentPhase.FIRING,
    severity=Severity.WARNING,
    state=RunState.SLOW,
    opened_at=T0,
    since=T0,
    reason="slow",
    dedup_key="wt1:x",
)
WARNING = a_notice(severity=Severity.WARNING)


def test_a_sink_hears_only_of_what_is_loud_enough_for_it() -> None:
    incident, messages = owed(INCIDENT, WARNING, ROUTES)
    assert [(m.sink, m.action) for m in messages] == [("slack", NoticeAction.TRIGGER)]
    assert incident.told == ("slack",)


def test_the_first_message_to_a_sink_is_a_trigger_whatever_the_notice_does() -> None:
    incident, _ = owed(INCIDENT, WARNING, ROUTES)
    raised = a_notice(action=NoticeAction.UPDATE, severity=Severity.CRITICAL, seq=2)
    incident, messages = owed(incident, raised, ROUTES)
    assert [(m.sink, m.action) for m in messages] == [
        ("slack", NoticeAction.UPDATE),
        ("pagerduty", NoticeAction.TRIGGER),
    ]
    assert incident.told == ("slack", "pagerduty")


def test_the_end_is_told_to_exactly_those_who_were_told_of_the_beginning() -> None:
    resolve = a_notice(action=NoticeAction.RESOLVE, severity=Severity.CRITICAL)
    told = replace(INCIDENT, told=("gone-from-the-routes",))
    incident, messages = owed(told, resolve, ROUTES)
    assert [(m.sink, m.action) for m in messages] == [("gone-from-the-routes", NoticeAction.RESOLVE)]
    assert incident is told
    assert owed(INCIDENT, resolve, ROUTES)[1] == ()


def test_a_sink_in_two_routes_hears_it_once_by_the_more_open_one() -> None:
    routes = (Route("slack", Severity.CRITICAL), Route("slack", Severity.INFO))
    assert len(owed(INCIDENT, WARNING, routes)[1]) == 1


def test_the_same_notice_owes_the_same_again() -> None:
    assert owed(INCIDENT, WARNING, ROUTES) == owed(INCIDENT, WARNING, ROUTES)
