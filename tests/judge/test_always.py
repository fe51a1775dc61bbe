"""What must always hold, over drawn stretches of work, pauses and faults."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.fleet import IDLE, SPIN, Doing, Fleet
from watchtower.model import RunState

_STRETCHES = st.lists(
    st.tuples(
        st.sampled_from(["work", "spin", "idle", "one idle", "blind"]), st.sampled_from([10, 45, 120, 400])
    ),
    min_size=1,
    max_size=6,
)
_PATTERNS: dict[str, tuple[Doing, dict[int, Doing]]] = {
    "spin": (SPIN, {}),
    "idle": (IDLE, {}),
    "one idle": (SPIN, {5: IDLE}),
}


def _play(stretches: list[tuple[str, int]], *, restart_after: int | None = None, scale: float = 1.0) -> Fleet:
    fleet = Fleet()
    fleet.go(200)
    fleet.scale = scale
    for number, (what, seconds) in enumerate(stretches):
        fleet.silent = set(fleet.names) if what == "blind" else set()
        if what == "work":
            fleet.work()
        elif what in _PATTERNS:
            fleet.freeze(_PATTERNS[what][0], but=_PATTERNS[what][1])
        fleet.go(seconds)
        if number == restart_after:
            fleet.restart_watcher()
    return fleet


@settings(max_examples=25, deadline=None)
@given(_STRETCHES)
def test_triggers_and_resolves_alternate(stretches: list[tuple[str, int]]) -> None:
    actions = [action for action, _, _ in _play(stretches).told() if action != "update"]
    assert actions == ["trigger", "resolve"] * (len(actions) // 2) + ["trigger"] * (len(actions) % 2)


@settings(max_examples=20, deadline=None)
@given(_STRETCHES)
def test_a_deadlock_that_stays_is_told_whatever_came_before(stretches: list[tuple[str, int]]) -> None:
    fleet = _play(stretches)
    fleet.silent = set()
    fleet.work()
    fleet.go(300)
    fleet.freeze(SPIN, but={5: IDLE})
    fleet.go(1500)
    assert fleet.judged() is RunState.DEADLOCKED
    actions = [action for action, _, _ in fleet.told() if action != "update"]
    assert actions[-1] == "trigger"


@settings(max_examples=20, deadline=None)
@given(_STRETCHES)
def test_the_same_observations_give_the_same_notices(stretches: list[tuple[str, int]]) -> None:
    assert _play(stretches).notices == _play(stretches).notices


@settings(max_examples=20, deadline=None)
@given(_STRETCHES, st.integers(0, 5))
def test_a_restart_between_two_rounds_changes_no_page(stretches: list[tuple[str, int]], cut: int) -> None:
    # While the watcher cannot see, a restart starts its own patience anew, so only stretches with sight are compared.
    seen = [(what, seconds) for what, seconds in stretches if what != "blind"]
    assert _play(seen).told() == _play(seen, restart_after=cut).told()


@settings(max_examples=15, deadline=None)
@given(_STRETCHES, st.sampled_from([0.5, 2.0]))
def test_watts_and_limits_scaled_together_change_nothing_once_a_level_is_known(
    stretches: list[tuple[str, int]], scale: float
) -> None:
    assert _play(stretches, scale=scale).told() == _play(stretches).told()


@settings(max_examples=15, deadline=None)
@given(st.integers(60, 3000))
def test_silence_alone_never_pages_critically(seconds: int) -> None:
    fleet = Fleet()
    fleet.go(200)
    fleet.silent = set(fleet.names)
    fleet.go(seconds)
    assert all(severity != "critical" for _, severity, _ in fleet.told())
