"""What a run that stands still is called, when, and who is named."""

import pytest

from tests.fakes.fleet import IDLE, ROUND_S, SPIN, WORK, Fleet
from watchtower.judge.settings import JudgeSettings
from watchtower.model import RunState

CRITICAL_DEADLOCK = ("trigger", "critical", "deadlocked")


def test_all_ranks_spinning_without_a_step_is_a_deadlock_within_90_seconds() -> None:
    fleet = Fleet()
    fleet.go(300)
    onset = fleet.freeze(SPIN)
    fleet.go(120)
    assert fleet.judged() is RunState.DEADLOCKED
    [notice] = fleet.notices
    assert notice.at - onset <= 90
    assert abs(notice.since - onset) <= ROUND_S + 1
    assert "8 of 8 ranks at 100 % utilization, 20 % of their own working power" in notice.reason


def test_the_same_for_less_than_the_hold_pages_nobody() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(50)
    fleet.work()
    fleet.go(120)
    assert fleet.notices == []
    assert fleet.judged() is RunState.PROGRESSING


def test_the_hold_is_what_the_settings_say() -> None:
    fleet = Fleet(settings=JudgeSettings(deadlock_hold_s=20.0))
    fleet.go(300)
    onset = fleet.freeze(SPIN)
    fleet.go(60)
    assert 20 <= fleet.notices[0].at - onset <= 35


def test_one_idle_rank_among_spinning_ones_is_named() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN, but={5: IDLE})
    fleet.go(120)
    assert fleet.judged() is RunState.DEADLOCKED
    assert fleet.suspects == [5]


def test_a_rank_that_stopped_seconds_before_the_others_is_named() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.doing[3] = SPIN
    fleet.go(5)
    fleet.freeze(SPIN)
    fleet.go(120)
    assert fleet.suspects == [3]


def test_nobody_is_named_when_all_stop_together() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(120)
    assert fleet.suspects == []


def test_rank_0_idle_alone_waits_for_what_a_checkpoint_to_unseen_storage_takes() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN, but={0: IDLE})
    fleet.go(320)
    assert fleet.notices == []
    fleet.go(60)
    assert fleet.told() == [CRITICAL_DEADLOCK]
    assert fleet.suspects == [0]


def test_rank_0_writing_gigabytes_while_the_rest_spin_is_a_pause() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN, but={0: IDLE})
    fleet.write_mb_s[0] = 800.0
    fleet.go(900)
    assert fleet.notices == []
    assert fleet.judged() is RunState.PROGRESSING


def test_a_save_whose_bytes_stop_is_named_well_before_the_limit_of_a_pause() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN, but={0: IDLE})
    fleet.write_mb_s[0] = 800.0
    fleet.go(60)
    fleet.write_mb_s[0] = 0.0
    fleet.go(240)
    assert fleet.told() == [CRITICAL_DEADLOCK]


def test_one_rank_working_while_the_rest_wait_is_an_evaluation() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN, but={0: WORK})
    fleet.go(2400)
    assert fleet.notices == []
    assert fleet.judged() is RunState.PROGRESSING


def test_all_idle_is_hung_and_only_after_an_epoch_boundary_could_have_passed() -> None:
    fleet = Fleet()
    fleet.go(300)
    onset = fleet.freeze(IDLE)
    fleet.go(290)
    assert fleet.notices == []
    fleet.go(60)
    assert fleet.told() == [("trigger", "critical", "hung")]
    assert fleet.notices[0].at - onset <= 320


def test_all_idle_with_busy_hosts_gets_longer() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(IDLE)
    fleet.cpu_cores = dict.fromkeys(range(8), 4.0)
    fleet.go(600)
    assert fleet.notices == []


def test_a_pause_that_healed_before_is_waited_out_the_next_time() -> None:
    fleet = Fleet()
    fleet.go(300)
    for _ in range(2):
        fleet.freeze(SPIN)
        fleet.go(45)
        fleet.work()
        fleet.go(120)
    fleet.freeze(SPIN)
    fleet.go(80)
    assert fleet.notices == []


def test_a_deadlock_that_healed_teaches_no_patience_even_if_the_watcher_was_blind_at_its_end() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(400)
    fleet.silent = set(fleet.names)
    fleet.go(400)
    fleet.silent.clear()
    fleet.work()
    fleet.go(300)
    onset = fleet.freeze(SPIN)
    fleet.go(120)
    assert fleet.judged() is RunState.DEADLOCKED
    assert fleet.notices[-1].at - onset <= 90


def test_how_long_a_deadlock_lasted_is_not_learned_as_a_pace() -> None:
    fleet = Fleet()
    fleet.go(35)  # a young run: few gaps are known
    fleet.freeze(SPIN)
    fleet.go(900)
    fleet.work()
    fleet.go(200)
    onset = fleet.freeze(SPIN)
    fleet.go(200)
    assert fleet.judged() is RunState.DEADLOCKED
    assert fleet.notices[-1].at - onset <= 90


def test_a_repeated_step_is_not_progress() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(120, each=lambda f: f.say(step=f.step))
    assert fleet.told() == [CRITICAL_DEADLOCK]


def test_steps_that_go_on_beat_a_power_pattern_that_looks_dead() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.all(SPIN)
    fleet.go(600)
    assert fleet.notices == []
    assert fleet.judged() is RunState.PROGRESSING


def test_a_deadlock_is_over_only_when_a_new_step_comes() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(120)
    fleet.all(WORK)
    fleet.go(120)
    assert fleet.judged() is RunState.DEADLOCKED
    fleet.work()
    fleet.go(200)
    assert fleet.judged() is RunState.PROGRESSING
    assert fleet.told() == [CRITICAL_DEADLOCK, ("resolve", "critical", "progressing")]


def test_without_a_step_feed_the_hold_is_longer_and_the_page_says_what_it_rests_on() -> None:
    fleet = Fleet(feed=False)
    fleet.go(600)
    assert fleet.judged() is RunState.PROGRESSING
    assert "no step feed" in fleet.reason
    onset = fleet.freeze(SPIN)
    fleet.go(140)
    assert fleet.notices == []
    fleet.go(60)
    assert fleet.told() == [CRITICAL_DEADLOCK]
    assert fleet.notices[0].at - onset <= 180
    assert "no step feed" in fleet.notices[0].reason


def test_ranks_that_spin_before_the_first_step_while_nothing_prepares_are_a_deadlock() -> None:
    fleet = Fleet(feed=False)
    fleet.freeze(SPIN)
    fleet.go(590)
    assert fleet.judged() is RunState.STARTING
    fleet.go(60)
    assert fleet.told() == [CRITICAL_DEADLOCK]


def test_tokenising_on_one_host_for_hours_is_starting() -> None:
    fleet = Fleet(feed=False)
    fleet.freeze(SPIN, but={0: IDLE})
    fleet.cpu_cores[0] = 8.0
    fleet.go(3 * 3600)
    assert fleet.notices == []
    assert fleet.judged() is RunState.STARTING


def test_a_printed_step_zero_is_no_first_step() -> None:
    fleet = Fleet()
    fleet.step = 0
    fleet.freeze(IDLE)
    fleet.cpu_cores = dict.fromkeys(range(8), 2.5)
    fleet.say(step=0)
    fleet.go(1700)
    assert fleet.notices == []
    assert fleet.judged() is RunState.STARTING


@pytest.mark.parametrize("share", [0.45, 1.0])
def test_a_power_limit_that_changes_is_no_fault(share: float) -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.limit_w = 700 * share
    fleet.all((600.0 * share, 99.0, 45.0))
    fleet.go(600)
    assert fleet.notices == []


def test_small_boards_that_spin_at_six_tenths_of_their_working_power_are_recognised() -> None:
    fleet = Fleet()
    fleet.limit_w = 70.0
    fleet.all((66.0, 99.0, 40.0))
    fleet.go(300)
    fleet.freeze((41.0, 100.0, 0.0))
    fleet.go(120)
    assert fleet.told() == [CRITICAL_DEADLOCK]


def test_a_restart_of_the_watcher_in_the_middle_neither_pages_again_nor_forgets() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN, but={5: IDLE})
    fleet.go(120)
    fleet.restart_watcher()
    fleet.go(300)
    assert fleet.told() == [CRITICAL_DEADLOCK]
    assert fleet.judged() is RunState.DEADLOCKED
    fleet.work()
    fleet.go(200)
    assert fleet.told()[1:] == [("resolve", "critical", "progressing")]


def test_a_restart_of_the_watcher_inside_the_hold_still_pages_in_time() -> None:
    fleet = Fleet()
    fleet.go(300)
    onset = fleet.freeze(SPIN)
    fleet.go(30)
    fleet.restart_watcher()
    fleet.go(90)
    assert fleet.told() == [CRITICAL_DEADLOCK]
    assert fleet.notices[0].at - onset <= 90


def test_a_rank_that_was_never_seen_is_said_with_the_evidence() -> None:
    fleet = Fleet(feed=False)
    fleet.world_size = 9
    fleet.freeze(SPIN)
    fleet.go(700)
    assert ("ranks ever seen", "8 of 9") in [(e.name, e.value) for e in fleet.notices[0].evidence]
