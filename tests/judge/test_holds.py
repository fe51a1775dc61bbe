"""Each hold, from both sides: not a round earlier, and at most three rounds later."""

from collections.abc import Callable

import pytest

from tests.fakes.fleet import IDLE, ROUND_S, SPIN, WORK, Fleet
from watchtower.model import Phase, RunState

Prepare = Callable[[Fleet], None]


def _idle(fleet: Fleet) -> None:
    fleet.freeze(IDLE)


def _spin(fleet: Fleet) -> None:
    fleet.freeze(SPIN)


def _rank_0_idle(fleet: Fleet) -> None:
    fleet.freeze(SPIN, but={0: IDLE})


def _idle_with_busy_hosts(fleet: Fleet) -> None:
    fleet.freeze(IDLE)
    fleet.cpu_cores = dict.fromkeys(fleet.doing, 4.0)


def _rank_0_writes_for_ever(fleet: Fleet) -> None:
    fleet.freeze(SPIN, but={0: IDLE})
    fleet.write_mb_s[0] = 500.0


def _works_without_a_step(fleet: Fleet) -> None:
    fleet.freeze(WORK)


def _one_works_and_the_rest_wait(fleet: Fleet) -> None:
    fleet.freeze(SPIN, but={0: WORK})


def _says_checkpoint_and_spins(fleet: Fleet) -> None:
    fleet.freeze(SPIN)
    fleet.say(phase=Phase.CHECKPOINT)


def _one_dies_and_the_rest_spin(fleet: Fleet) -> None:
    fleet.kill(2, signal=9)
    fleet.freeze(SPIN)


def _all_die(fleet: Fleet) -> None:
    for rank in fleet.doing:
        fleet.kill(rank, code=1)
    fleet.stepping = False


def _loses_a_gpu(fleet: Fleet) -> None:
    fleet.lost.add(5)
    fleet.freeze(SPIN)


def _loses_a_node(fleet: Fleet) -> None:
    fleet.silent.add("gpu-b")
    fleet.freeze(SPIN)


def _finishes_and_stays(fleet: Fleet) -> None:
    fleet.freeze(IDLE)
    fleet.say(phase=Phase.FINISHED)


@pytest.mark.parametrize(
    ("what", "state", "hold_s"),
    [
        pytest.param(_spin, RunState.DEADLOCKED, 55, id="all-spinning"),
        pytest.param(_rank_0_idle, RunState.DEADLOCKED, 330, id="rank-0-idle-alone"),
        pytest.param(_idle, RunState.HUNG, 300, id="all-idle"),
        pytest.param(_idle_with_busy_hosts, RunState.HUNG, 900, id="all-idle-and-hosts-busy"),
        pytest.param(_rank_0_writes_for_ever, RunState.DEADLOCKED, 3600, id="a-save-without-end"),
        pytest.param(_works_without_a_step, RunState.HUNG, 1800, id="work-without-steps"),
        pytest.param(_one_works_and_the_rest_wait, RunState.HUNG, 3600, id="an-evaluation-without-end"),
        pytest.param(_says_checkpoint_and_spins, RunState.DEADLOCKED, 900, id="a-declared-checkpoint"),
        pytest.param(_one_dies_and_the_rest_spin, RunState.CRASHED, 20, id="one-rank-gone"),
        pytest.param(_all_die, RunState.CRASHED, 20, id="all-ranks-gone"),
        pytest.param(_loses_a_gpu, RunState.CRASHED, 20, id="gpu-lost"),
        pytest.param(_loses_a_node, RunState.CRASHED, 60, id="node-lost"),
        pytest.param(_finishes_and_stays, RunState.LINGERING, 1500, id="lingering"),
    ],
)
def test_a_hold_is_kept_and_not_overdrawn(what: Prepare, state: RunState, hold_s: float) -> None:
    fleet = Fleet(nodes=3)
    fleet.go(300)
    onset = fleet.now
    what(fleet)
    fleet.go(hold_s + 60)
    named = [change for change in fleet.changes if change.verdict.state is state]
    assert named, f"never {state}; {fleet.judged()}: {fleet.reason}"
    assert hold_s <= named[0].at - onset <= hold_s + 3 * ROUND_S
    assert len([n for n in fleet.notices if n.action == "trigger"]) == 1


def test_a_node_unseen_for_25_seconds_is_still_seen() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.silent = set(fleet.names)
    fleet.go(25)
    assert fleet.judged() is RunState.PROGRESSING
    fleet.go(30)
    assert fleet.judged() is RunState.UNKNOWN


def test_a_start_without_any_sign_is_waited_for_half_an_hour() -> None:
    fleet = Fleet(feed=False)
    fleet.freeze(IDLE)
    onset = fleet.now
    fleet.go(1900)
    [notice] = fleet.notices
    assert 1800 <= notice.at - onset <= 1815
    assert notice.state is RunState.HUNG


def test_bytes_that_stop_start_their_own_hold() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN, but={0: IDLE})
    fleet.write_mb_s[0] = 800.0
    fleet.go(200)
    stopped = fleet.now
    fleet.write_mb_s[0] = 0.0
    fleet.go(200)
    [notice] = fleet.notices
    assert 150 <= notice.at - stopped <= 165


@pytest.mark.parametrize(("mb_s", "pages"), [(6.0, False), (3.0, True)])
def test_only_big_transfers_count(mb_s: float, pages: bool) -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.write_mb_s[0] = mb_s
    fleet.go(200)
    assert bool(fleet.notices) is pages


@pytest.mark.parametrize(("cores", "pages"), [(2.0, False), (1.2, True)])
def test_only_a_busy_host_counts(cores: float, pages: bool) -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(IDLE)
    fleet.cpu_cores = dict.fromkeys(fleet.doing, cores)
    fleet.go(400)
    assert bool(fleet.notices) is pages


def test_a_run_that_left_is_forgotten_after_a_day() -> None:
    fleet = Fleet(nodes=1, gpus=1)
    fleet.go(60)
    fleet.kill(0, code=0)
    fleet.stepping = False
    fleet.go(86_000)
    assert fleet.steps[-1].views
    fleet.go(1000)
    assert not fleet.steps[-1].views
    assert fleet.steps[-1].forgotten == ()
    assert any(step.forgotten == ("slurm-1",) for step in fleet.steps)


def test_slowness_is_held_for_three_minutes() -> None:
    fleet = Fleet(step_s=4.0)
    fleet.go(1200)
    fleet.step_s, onset = 8.0, fleet.now
    fleet.go(400)
    [notice] = fleet.notices
    assert 180 <= notice.at - onset <= 300
