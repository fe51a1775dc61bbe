"""What one rank's board is said to do, at the exact boundaries."""

import pytest

from watchtower.classify.activity import last_worked, sample_activity
from watchtower.classify.memory import RankMemory
from watchtower.classify.settings import Thresholds
from watchtower.model import Activity, Sample

T = Thresholds()


def _rank(
    working_w: float | None = 600.0, mem: float | None = 45.0, limit_w: float | None = 700.0
) -> RankMemory:
    return RankMemory(
        key="0", rank=0, node="a", pid=1, working_w=working_w, working_mem_util=mem, power_limit_w=limit_w
    )


@pytest.mark.parametrize(
    ("watts", "util", "mem", "activity"),
    [
        pytest.param(
            480.0, 100.0, 0.0, Activity.WORKING, id="0.80-of-its-own-level-is-work-even-with-still-memory"
        ),
        pytest.param(479.0, 100.0, 0.0, Activity.SPINNING, id="just-below-0.80-with-still-memory-spins"),
        pytest.param(330.0, 100.0, 30.0, Activity.WORKING, id="0.55-with-moving-memory-is-work"),
        pytest.param(
            329.0, 100.0, 30.0, Activity.WORKING, id="below-0.55-with-memory-that-moves-as-at-work-is-work"
        ),
        pytest.param(179.0, 100.0, 30.0, Activity.SPINNING, id="below-0.30-is-dark-whatever-memory-does"),
        pytest.param(120.0, 100.0, 0.0, Activity.SPINNING, id="a-fifth-of-its-level-at-100-percent-spins"),
        pytest.param(120.0, 0.0, 0.0, Activity.IDLE, id="a-fifth-of-its-level-at-0-percent-is-idle"),
        pytest.param(120.0, None, 0.0, Activity.SPINNING, id="unknown-utilization-is-not-taken-for-zero"),
        pytest.param(None, None, None, Activity.UNSEEN, id="nothing-known-is-unseen"),
        pytest.param(None, 100.0, 0.0, Activity.SPINNING, id="without-watts-utilization-and-memory-speak"),
        pytest.param(None, 2.0, 0.0, Activity.IDLE, id="without-watts-no-utilization-is-idle"),
        pytest.param(None, 70.0, 20.0, Activity.WORKING, id="without-watts-moving-memory-is-work"),
    ],
)
def test_one_reading(watts: float | None, util: float | None, mem: float | None, activity: Activity) -> None:
    assert sample_activity(watts, util, mem, rank=_rank(), thresholds=T) is activity


def test_before_a_level_is_learned_the_enforced_limit_stands_in() -> None:
    fresh = _rank(working_w=None, mem=None)
    assert sample_activity(0.6 * 700 * 0.55, 99.0, 40.0, rank=fresh, thresholds=T) is Activity.WORKING
    assert sample_activity(0.6 * 700 * 0.54, 99.0, 40.0, rank=fresh, thresholds=T) is Activity.SPINNING


def test_a_level_of_its_own_makes_the_limit_irrelevant() -> None:
    # Communication-bound from birth: 150 W of 700 W is this run's work.
    assert (
        sample_activity(140.0, 100.0, 10.0, rank=_rank(working_w=150.0, mem=10.0), thresholds=T)
        is Activity.WORKING
    )


def test_the_newest_working_sample_is_found_and_old_ones_are_not_judged_twice() -> None:
    samples: list[Sample] = [
        (4.0, 600.0, 99.0, 45.0, 1900.0, 1.0),
        (3.0, 590.0, 99.0, 44.0, 1900.0, 1.0),
        (2.0, 120.0, 100.0, 0.0, 1900.0, 1.0),
    ]
    assert last_worked(samples, at=100.0, after=90.0, rank=_rank(), thresholds=T) == 97.0
    assert last_worked(samples, at=100.0, after=97.0, rank=_rank(), thresholds=T) is None
