"""What a run that starts again under the same id is taken for."""

from tests.fakes.fleet import SPIN, Fleet
from watchtower.model import RunState


def test_workers_replaced_between_two_polls_that_resume_further_back_are_a_restart_and_no_fault() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.relaunch(step=fleet.step - 40)
    fleet.go(150)
    assert fleet.judged() is RunState.PROGRESSING
    assert fleet.notices == []
    [view] = fleet.steps[-1].views
    assert view.restarts == 1
    assert view.step == fleet.step


def test_a_hot_spare_that_takes_over_one_rank_is_no_restart() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.pids[2] = 9999
    fleet.go(300)
    [view] = fleet.steps[-1].views
    assert (view.restarts, fleet.notices) == (0, [])


def test_a_deadlock_right_after_a_restart_is_named_by_the_same_rule() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.relaunch(step=fleet.step - 40)
    fleet.go(60)
    onset = fleet.freeze(SPIN)
    fleet.go(300)
    assert fleet.told() == [("trigger", "critical", "deadlocked")]
    assert fleet.notices[0].at - onset <= 150


def test_a_step_that_goes_back_under_the_same_processes_is_not_believed() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(90, each=lambda f: f.say(step=5))
    assert fleet.judged() is RunState.DEADLOCKED
    assert fleet.steps[-1].views[0].restarts == 0
