"""When a run that steps is slow, and who is named."""

from tests.fakes.fleet import Fleet
from watchtower.classify.settings import RunRule
from watchtower.judge.settings import JudgeSettings
from watchtower.model import RunState


def test_a_run_at_six_tenths_of_its_own_pace_is_slow() -> None:
    fleet = Fleet(step_s=4.0)
    fleet.go(1200)
    fleet.step_s = 6.8
    onset = fleet.now
    fleet.go(420)
    assert fleet.told() == [("trigger", "warning", "slow")]
    assert fleet.notices[0].at - onset <= 400


def test_a_run_at_eight_tenths_of_its_own_pace_is_not() -> None:
    fleet = Fleet(step_s=4.0)
    fleet.go(1200)
    fleet.step_s = 5.0
    fleet.go(1200)
    assert fleet.notices == []


def test_a_clocked_down_rank_is_named_as_the_straggler() -> None:
    fleet = Fleet(step_s=4.0)
    fleet.go(1200)
    fleet.step_s = 7.0
    fleet.clock_mhz[6] = 1000.0
    fleet.go(600)
    assert fleet.suspects == [6]


def test_a_floor_catches_a_run_that_was_slow_from_birth() -> None:
    rule = RunRule(match="slurm-*", throughput_floor="9000 tokens/s")
    fleet = Fleet(settings=JudgeSettings(runs=(rule,)))
    fleet.throughput = 8000.0
    fleet.go(600)
    assert fleet.told() == [("trigger", "warning", "slow")]
    assert "below its floor of 9000 tokens/s" in fleet.notices[0].reason


def test_a_floor_that_is_met_says_nothing() -> None:
    rule = RunRule(match="llm", throughput_floor="9000 tokens/s")
    fleet = Fleet(settings=JudgeSettings(runs=(rule,)))
    fleet.throughput = 9100.0
    fleet.go(600)
    assert fleet.notices == []
    assert fleet.judged() is RunState.PROGRESSING


def test_long_steps_that_vary_severalfold_are_not_slow() -> None:
    fleet = Fleet(step_s=140.0)
    lengths = [140.0, 600.0, 250.0, 720.0, 180.0, 400.0]
    for number in range(60):
        fleet.step_s = lengths[number % len(lengths)]
        fleet.go(fleet.step_s)
    assert fleet.notices == []


def test_the_page_can_say_when_the_collectives_own_timeout_will_strike() -> None:
    said = Fleet()
    said.go(100)
    said.happen("collective_timeout", code=1800)
    said.happen("collective_timeout", code=600)
    said.go(10)
    assert said.steps[-1].views[0].collective_timeout_s == 600
    told = Fleet(settings=JudgeSettings(runs=(RunRule(match="*", collective_timeout_s=900.0),)))
    told.go(10)
    assert told.steps[-1].views[0].collective_timeout_s == 900
