"""What must hold of an incident's life for every history, drawn as stretches of one state each."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.alerts.test_lifecycle import SETTINGS, verdict
from tests.fakes.sinks import SUSPECT, T0
from watchtower.alerts.lifecycle import advance
from watchtower.alerts.owing import owed
from watchtower.alerts.settings import Route
from watchtower.model import SEVERITY_RANK, Incident, IncidentPhase, NoticeAction, Owed, RunState, Severity

ROUTES = (Route("slack", Severity.WARNING), Route("pagerduty", Severity.CRITICAL))
STRETCH = st.tuples(st.sampled_from(list(RunState)), st.integers(1, 90), st.booleans())
HISTORY = st.lists(STRETCH, min_size=1, max_size=14)
GOOD = {RunState.PROGRESSING, RunState.STARTING, RunState.COMPLETED, RunState.STOPPED}
ROUND_S = 5.0

History = list[tuple[RunState, int, bool]]
Round = tuple[RunState, Incident | None, tuple[Owed, ...]]


def play(history: History, *, restart_every: int = 0) -> list[Round]:
    """Run a history through, 5 s a round; `restart_every` rounds the incident goes through its written form."""
    incident: Incident | None = None
    rounds: list[Round] = []
    at = T0
    for state, length, blamed in history:
        since = at
        for _ in range(length):
            if restart_every and incident is not None and len(rounds) % restart_every == 0:
                incident = msgspec.json.decode(msgspec.json.encode(incident), type=Incident)
            judged = verdict(state, at, since=since, suspects=(SUSPECT,) if blamed else ())
            result = advance(incident, judged, None, subject="run:r1", settings=SETTINGS)
            incident = result.incident
            messages: tuple[Owed, ...] = ()
            for notice in result.notices:
                assert incident is not None
                incident, messages = owed(incident, notice, ROUTES)
            rounds.append((state, incident, messages))
            if incident is not None and incident.phase is IncidentPhase.RESOLVED:
                incident = None
            at += ROUND_S
    return rounds


def sent(rounds: list[Round], sink: str) -> list[Owed]:
    return [message for _, _, messages in rounds for message in messages if message.sink == sink]


@given(HISTORY)
def test_triggers_and_resolves_alternate_for_every_sink(history: History) -> None:
    rounds = play(history)
    for route in ROUTES:
        ends = [m.action for m in sent(rounds, route.sink) if m.action is not NoticeAction.UPDATE]
        wanted = [NoticeAction.TRIGGER, NoticeAction.RESOLVE] * len(ends)
        assert ends == wanted[: len(ends)]


@given(HISTORY)
def test_nothing_but_good_or_an_end_resolves(history: History) -> None:
    for state, _, messages in play(history):
        assert state in GOOD or all(m.action is not NoticeAction.RESOLVE for m in messages)


@given(HISTORY)
def test_a_restart_between_any_two_rounds_changes_nothing(history: History) -> None:
    assert play(history) == play(history, restart_every=1) == play(history, restart_every=7)


@given(HISTORY)
def test_inside_one_incident_severity_only_rises_and_seq_always_does(history: History) -> None:
    last: dict[str, Incident] = {}
    for _, incident, messages in play(history):
        if incident is None:
            continue
        before = last.get(incident.uid)
        if before is not None:
            assert SEVERITY_RANK[incident.severity] >= SEVERITY_RANK[before.severity]
            assert incident.seq > before.seq if messages else incident.seq >= before.seq
            assert set(before.told) <= set(incident.told)
        last[incident.uid] = incident


@given(st.sampled_from([RunState.DEADLOCKED, RunState.HUNG, RunState.CRASHED]), st.integers(1, 2000), HISTORY)
def test_a_fault_that_stays_is_told_exactly_once_whatever_went_before(
    state: RunState, length: int, before: History
) -> None:
    done = [*before, (RunState.COMPLETED, 1, False)]
    rounds = play([*done, (state, length, False)])
    told = [m for _, _, messages in rounds[sum(n for _, n, _ in done) :] for m in messages]
    assert [(m.sink, m.action) for m in told] == [
        ("slack", NoticeAction.TRIGGER),
        ("pagerduty", NoticeAction.TRIGGER),
    ]


@given(HISTORY)
def test_no_history_makes_more_than_a_few_messages_a_stretch(history: History) -> None:
    rounds = play(history)
    minutes = 1 + len(rounds) * ROUND_S / 60
    assert len(sent(rounds, "slack")) <= 2 * len(history) + minutes
