"""What nobody expected costs one node's answer, or one run's verdict, and never the round."""

from msgspec.structs import replace

from tests.fakes.fleet import Fleet
from watchtower.model import Observation, RunState


def test_an_answer_that_trips_over_a_bug_of_ours_costs_only_itself() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.now += 5
    fleet._make_steps()
    good = [fleet._observe(n, name) for n, name in enumerate(fleet.names)]
    reading = good[0].reading
    assert reading is not None
    bad = Observation(at=fleet.now, node="gpu-z", reading=replace(reading, gpus=None))
    step = fleet.judge.step([bad, *good], fleet.now)
    assert [trouble.run_id for trouble in step.troubles] == ["what gpu-z said"]
    assert [view.state for view in step.views] == [RunState.PROGRESSING]
    assert step.views[0].step == fleet.step
