"""The watcher was away: killed, suspended, or told to watch other nodes. That time is its own."""

import pytest

from tests.fakes.fleet import IDLE, SPIN, Fleet
from watchtower.model import RunState


@pytest.mark.parametrize("away_s", [20.0, 600.0])
def test_a_pause_that_went_on_while_the_watcher_was_down_is_no_deadlock(away_s: float) -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(40)  # inside the hold
    fleet.now += away_s
    fleet.work()
    fleet.restart_watcher()
    fleet.go(5, each=lambda f: f.silent.update(f.names))  # the first round comes before the first answer
    fleet.silent.clear()
    fleet.go(300)
    assert fleet.notices == []


def test_a_watcher_that_was_suspended_judges_nothing_before_it_has_looked() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(IDLE)
    fleet.go(60)
    fleet.now += 600  # SIGSTOP, SIGCONT
    fleet.silent = set(fleet.names)
    fleet.go(10)
    assert fleet.notices == []
    fleet.silent.clear()
    fleet.work()
    fleet.go(100)
    assert fleet.notices == []


def test_a_deadlock_that_is_still_there_after_the_absence_is_told() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(40)
    fleet.now += 600
    fleet.restart_watcher()
    fleet.go(60)
    assert fleet.told() == [("trigger", "critical", "deadlocked")]


def test_agents_that_stay_away_after_the_absence_are_unknown_again() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.restart_watcher()
    fleet.silent = set(fleet.names)
    fleet.go(30)
    assert fleet.judged() is RunState.PROGRESSING
    fleet.go(30)
    assert fleet.judged() is RunState.UNKNOWN


def test_a_run_whose_nodes_are_no_longer_polled_is_closed_with_that_reason() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(120)
    fleet.judge.expect(["elsewhere"])
    fleet.names = []
    fleet.go(5)
    assert fleet.steps[-1].forgotten == ("slurm-1",)
    assert fleet.notices[-1].action == "resolve"
    assert "no longer watched" in fleet.notices[-1].reason
    fleet.go(60)
    assert fleet.steps[-1].views == ()


def test_a_run_that_nobody_has_seen_for_a_day_is_forgotten_though_nobody_saw_it_leave() -> None:
    fleet = Fleet(nodes=1, gpus=1)
    fleet.go(60)
    fleet.silent = set(fleet.names)
    fleet.go(86_500)
    assert fleet.steps[-1].views == ()
    about = [(n.subject, str(n.action)) for n in fleet.notices]
    assert about[:2] == [("run:slurm-1", "trigger"), ("run:slurm-1", "resolve")]
    assert set(about[2:]) <= {
        ("watcher", "trigger")
    }  # its agent is still silent, and now nobody else says so
