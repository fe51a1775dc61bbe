"""What the founding incident shows, second by second."""

from statistics import mean, pstdev

import pytest

from watchtower.simulate.story import Story, showing

STORY = Story()
EVERY_RANK = range(STORY.world_size)


def powers(rank: int, begin_s: float, end_s: float) -> list[float]:
    return [showing(STORY, rank, begin_s + second).board_power_w for second in range(int(end_s - begin_s))]


def test_steps_come_at_their_pace_and_stop_at_the_last_for_ever() -> None:
    assert STORY.step_at(0) == 3790
    assert STORY.step_at(STORY.last_step_at - 0.01) == 3849
    assert STORY.step_at(STORY.last_step_at + 0.01) == 3850
    assert STORY.step_at(STORY.last_step_at + 10_000) == 3850


def test_a_step_is_completed_exactly_when_it_is_said_to_be() -> None:
    for step in range(STORY.first_step + 1, STORY.last_step + 1):
        done_s = STORY.step_done_at(step)
        assert STORY.step_at(done_s) == step
        assert STORY.step_at(done_s - 0.001) == step - 1


@pytest.mark.parametrize("rank", EVERY_RANK)
def test_a_working_board_swings_between_600_and_970_watts(rank: int) -> None:
    watts = powers(rank, 0, 22)
    assert 580 <= min(watts) < 680
    assert 940 < max(watts) <= 1000
    assert pstdev(watts) > 80


@pytest.mark.parametrize("rank", EVERY_RANK)
def test_a_stuck_board_is_flat_at_a_quarter_of_its_working_power(rank: int) -> None:
    watts = powers(rank, STORY.stuck_at + 1, STORY.stuck_at + 61)
    assert 225 <= min(watts) <= max(watts) <= 275
    assert max(watts) - min(watts) < 4
    assert mean(watts) < 0.4 * mean(powers(rank, 0, 22))
    shows = showing(STORY, rank, STORY.stuck_at + 30)
    assert (shows.util_pct, shows.mem_util_pct) == (100, 0)


def test_a_stuck_board_cools() -> None:
    temperatures = [showing(STORY, 5, STORY.stuck_at + second).temperature_c for second in range(0, 200, 20)]
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[-1] < temperatures[0] - 10


def test_rank_3_stops_six_seconds_before_all_others() -> None:
    others = [STORY.stops_at(rank) for rank in EVERY_RANK if rank != 3]
    assert STORY.stops_at(3) == STORY.onset_at
    assert min(others) - STORY.stops_at(3) == pytest.approx(6.0, abs=0.2)
    between = STORY.onset_at + 3
    assert showing(STORY, 3, between).board_power_w < 280
    assert all(showing(STORY, rank, between).board_power_w > 580 for rank in EVERY_RANK if rank != 3)


def test_the_healthy_save_looks_like_a_short_deadlock_of_all_but_rank_0() -> None:
    during = STORY.step_done_at(STORY.save_step) + 2
    assert STORY.saves_at(during)
    assert showing(STORY, 0, during).util_pct == 0
    assert all(showing(STORY, rank, during).board_power_w < 280 for rank in EVERY_RANK)
    assert STORY.step_at(during + STORY.save_s) > STORY.save_step


def test_the_story_is_told_alike_every_time() -> None:
    assert [showing(STORY, rank, 12.3) for rank in EVERY_RANK] == [
        showing(Story(), rank, 12.3) for rank in EVERY_RANK
    ]
