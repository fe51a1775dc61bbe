"""What processes that leave, boards that vanish and agents that fall silent mean."""

from tests.fakes.fleet import IDLE, SPIN, Fleet
from watchtower.model import NvmlState, Phase, RunState


def _leave_all(fleet: Fleet, *, signal: int | None = None, code: int | None = None) -> None:
    for rank in fleet.doing:
        fleet.kill(rank, signal=signal, code=code)
    fleet.stepping = False


def test_every_rank_leaving_with_an_error_is_a_crash() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.kill(6, code=1)
    fleet.go(5)
    for rank in set(fleet.doing) - {6}:
        fleet.kill(rank, signal=15)
    fleet.stepping = False
    fleet.go(60)
    assert fleet.told() == [("trigger", "critical", "crashed")]
    assert fleet.suspects == [6]


def test_every_rank_told_to_stop_is_stopped_and_pages_nobody() -> None:
    fleet = Fleet()
    fleet.go(300)
    _leave_all(fleet, signal=15)
    fleet.go(120)
    assert fleet.judged() is RunState.STOPPED
    assert fleet.notices == []


def test_every_rank_leaving_with_code_0_is_completed() -> None:
    fleet = Fleet()
    fleet.go(300)
    _leave_all(fleet, code=0)
    fleet.go(120)
    assert fleet.judged() is RunState.COMPLETED
    assert fleet.notices == []


def test_ranks_that_vanish_without_a_word_far_from_the_end_are_a_crash() -> None:
    fleet = Fleet()
    fleet.go(300)
    _leave_all(fleet)
    fleet.go(60)
    assert fleet.judged() is RunState.CRASHED


def test_a_run_that_said_it_finished_and_left_is_completed() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.stepping = False
    fleet.say(phase=Phase.FINISHED)
    fleet.go(60)
    assert fleet.judged() is RunState.PROGRESSING
    _leave_all(fleet)
    fleet.go(60)
    assert fleet.judged() is RunState.COMPLETED


def test_finished_work_whose_processes_stay_lingers_with_a_warning() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(IDLE)
    fleet.say(phase=Phase.FINISHED)
    fleet.go(1480)
    assert fleet.notices == []
    fleet.go(60)
    assert fleet.told() == [("trigger", "warning", "lingering")]


def test_an_upload_after_the_trainers_end_mark_is_no_hang() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(IDLE)
    fleet.say(phase=Phase.FINISHING)
    fleet.go(1200)
    assert fleet.notices == []
    fleet.go(400)
    assert fleet.told() == [("trigger", "warning", "lingering")]


def test_a_last_save_that_hangs_in_a_collective_is_a_deadlock_though_the_end_mark_was_printed() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.say(phase=Phase.FINISHING)
    fleet.go(960)
    assert fleet.told() == [("trigger", "critical", "deadlocked")]


def test_one_rank_gone_while_the_others_spin_is_a_crash_of_that_rank() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.kill(2, signal=9, oom=True)
    fleet.freeze(SPIN)
    fleet.go(60)
    assert fleet.told() == [("trigger", "critical", "crashed")]
    assert fleet.suspects == [2]
    assert "lack of host memory" in fleet.reason


def test_one_rank_gone_while_steps_go_on_is_a_warning_and_no_crash() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.kill(2, signal=9)
    fleet.go(300)
    assert fleet.judged() is RunState.PROGRESSING
    assert fleet.told() == [("trigger", "warning", "progressing")]


def test_a_torn_process_list_is_nothing() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.kill(2)
    fleet.go(10)
    fleet.gone.clear()
    fleet.go(60)
    assert fleet.notices == []


def test_a_gpu_off_the_bus_is_a_crash_of_its_rank_though_the_process_lives() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.lost.add(5)
    fleet.happen("xid", rank=5, code=79)
    fleet.freeze(SPIN)
    fleet.go(60)
    assert fleet.told()[0] == ("trigger", "critical", "crashed")
    assert fleet.suspects == [5]
    assert "Xid 79" in fleet.reason


def test_an_application_xid_alone_accuses_no_gpu() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.happen("xid", rank=5, code=45)
    fleet.go(120)
    assert fleet.notices == []


def test_suspended_processes_are_stopped_by_a_person() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(IDLE)
    fleet.proc_state = "T"
    fleet.go(1800)
    assert fleet.judged() is RunState.STOPPED
    assert fleet.notices == []


def test_one_silent_node_of_three_whose_peers_stop_is_a_lost_node() -> None:
    fleet = Fleet(nodes=3)
    fleet.go(300)
    fleet.silent.add("gpu-b")
    fleet.freeze(SPIN)
    fleet.go(120)
    assert fleet.notices[0].severity == "critical"
    assert {s.node for v in fleet.steps[-1].views for s in v.suspects} == {"gpu-b"}


def test_one_silent_agent_does_not_blind_a_run_that_steps() -> None:
    fleet = Fleet(nodes=3)
    fleet.go(300)
    fleet.silent.add("gpu-b")
    fleet.go(600)
    assert fleet.judged() is RunState.PROGRESSING
    assert [(n.subject, str(n.severity)) for n in fleet.notices] == [("nodes", "warning")]


def test_no_agent_answering_is_unknown_and_warns_after_five_minutes() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.silent = set(fleet.names)
    fleet.go(60)
    assert fleet.judged() is RunState.UNKNOWN
    assert fleet.notices == []
    fleet.go(300)
    assert fleet.told() == [("trigger", "warning", "unknown")]


def test_unknown_never_resolves_a_deadlock() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN)
    fleet.go(120)
    fleet.silent = set(fleet.names)
    fleet.go(1800)
    assert fleet.judged() is RunState.UNKNOWN
    assert [action for action, _, _ in fleet.told()] == ["trigger"]


def test_a_wedged_driver_is_unknown_and_not_an_exit() -> None:
    fleet = Fleet(feed=False)
    fleet.go(300)
    fleet.nvml = NvmlState.UNRESPONSIVE
    fleet.go(120)
    assert fleet.judged() is RunState.UNKNOWN


def test_a_crash_loop_is_one_incident_until_a_new_highest_step() -> None:
    fleet = Fleet()
    fleet.go(300)
    highest = fleet.step
    for _ in range(3):
        for rank in fleet.doing:
            fleet.kill(rank, code=1)
        fleet.stepping = False
        fleet.go(60)
        fleet.relaunch(step=highest - 30)
        fleet.go(100)
    assert [action for action, _, _ in fleet.told()].count("trigger") == 1
    assert "resolve" not in [action for action, _, _ in fleet.told()]
    assert fleet.judged() is RunState.SLOW
    fleet.go(300)
    assert fleet.judged() is RunState.PROGRESSING
    assert fleet.told()[-1][0] == "resolve"


def test_a_person_who_kills_the_wrong_rank_of_a_deadlock_does_not_erase_the_suspect() -> None:
    fleet = Fleet()
    fleet.go(300)
    fleet.freeze(SPIN, but={5: IDLE})
    fleet.go(120)
    fleet.kill(2, signal=9)
    fleet.go(60)
    assert fleet.judged() is RunState.CRASHED
    assert fleet.suspects == [5, 2]
    for rank in fleet.doing:
        fleet.kill(rank, signal=6)
    fleet.go(60)
    assert fleet.suspects[0] == 5
