"""The real pynvml on a library of ours: proves our calls and our care with what they return, not how hardware behaves."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import SimulatedNode
from watchtower.agent.nvml.process import Ended, SamplerProcess
from watchtower.agent.nvml.protocol import Board, Sweep
from watchtower.clock import SystemClock

CHILD = (sys.executable, "-m", "watchtower.agent.nvml.child")


class Asker:
    """A sampling process of the real kind, and the boards of its last answer."""

    def __init__(self) -> None:
        self.process = SamplerProcess(CHILD)
        self.number = 0

    def sweep(self) -> Sweep:
        self.number += 1
        self.process.ask(self.number)
        clock = SystemClock()
        until = clock.monotonic() + 20
        while clock.monotonic() < until:
            answer = self.process.answer(1)
            if isinstance(answer, Ended):
                pytest.fail(answer.why)
            if answer is not None:
                return answer
        pytest.fail("no answer in 20 s")

    def sweeps(self, count: int) -> Sweep:
        for _ in range(count - 1):
            self.sweep()
        return self.sweep()

    def board(self, index: int) -> Board:
        return self.sweep().boards[index]


@pytest.fixture
def asker(node: SimulatedNode) -> Iterator[Asker]:
    asker = Asker()
    yield asker
    asker.process.signal(signal.SIGKILL)
    asker.process.close()
    asker.process._process.wait()


def test_a_sweep_reads_every_board_in_full(node: SimulatedNode, asker: Asker) -> None:
    node.order(3, clock_event_reasons=0x4 | 0x800, temperature_c=58, power_average_w=880.0)
    sweep = asker.sweep()
    assert sweep.driver_version == "580.95.05"
    assert [board.uuid for board in sweep.boards] == [f"GPU-{n}" for n in range(8)]
    board = sweep.boards[3]
    assert (board.state, board.detail, board.missing) == ("ok", None, {})
    assert (board.power_w, board.power_from, board.power_limit_w) == (880.0, "average", 1100.0)
    assert (board.utilization_pct, board.mem_utilization_pct, board.sm_clock_mhz) == (100, 0, 1965)
    assert (board.memory_used_mib, board.memory_total_mib, board.temperature_c) == (231_000, 275_040, 58)
    assert board.clock_event_reasons == ("sw_power_cap", "0x800")
    assert (board.pci_bus_id, board.model) == ("00000000:1E:00.0", "NVIDIA B300 SXM6 AC")
    assert (board.ecc_uncorrected, board.recovery_action) == (0, 0)


def test_power_falls_back_to_instant_then_to_the_old_call(node: SimulatedNode, asker: Asker) -> None:
    node.break_(0, {"fi_ret.185": 3})
    node.break_(1, {"fi_ret.185": 3, "fi_ret.186": 3})
    node.break_(2, {"ret.nvmlDeviceGetFieldValues": 13})
    boards = asker.sweep().boards
    assert [board.power_from for board in boards[:3]] == ["instant", "usage", "usage"]
    assert [board.power_w for board in boards[:3]] == [900, 901, 902]


@pytest.mark.parametrize(
    "milliwatts",
    [0, 4_294_967_295, 2_200_001, 3_700_000_000],
    ids=["zero", "u32-max", "over twice the limit", "3.7 MW"],
)
def test_watts_that_cannot_be_are_no_watts(node: SimulatedNode, asker: Asker, milliwatts: int) -> None:
    node.break_(2, {"fi.185": milliwatts, "fi.186": milliwatts, "power": milliwatts})
    board = asker.board(2)
    assert board.power_w is None
    assert board.missing["power"] == "implausible"


def test_watts_at_twice_the_limit_are_still_believed(node: SimulatedNode, asker: Asker) -> None:
    node.break_(2, {"fi.185": 2_200_000})
    assert asker.board(2).power_w == 2200


def test_a_value_of_another_type_is_not_read_as_a_number(node: SimulatedNode, asker: Asker) -> None:
    node.break_(2, {"fi_type.185": 3})
    board = asker.board(2)
    assert (board.power_w, board.power_from) == (902, "instant")


def test_an_unreadable_field_is_none_with_its_reason_and_the_rest_goes_on(
    node: SimulatedNode, asker: Asker
) -> None:
    node.break_(
        4, {"ret.nvmlDeviceGetMemoryInfo": 4, "ret.nvmlDeviceGetMemoryInfo_v2": 4, "util": 4_294_967_295}
    )
    board = asker.board(4)
    assert board.state == "ok"
    assert (board.memory_used_mib, board.utilization_pct) == (None, None)
    assert board.missing == {"memory": "no_permission", "utilization": "implausible"}
    assert board.detail == "utilization: implausible, memory: no_permission"
    assert board.power_w == 904


def test_newer_calls_that_a_driver_lacks_are_replaced_by_the_older(node: SimulatedNode, asker: Asker) -> None:
    node.break_(
        1,
        {
            "ret.nvmlDeviceGetTemperatureV": 13,
            "ret.nvmlDeviceGetCurrentClocksEventReasons": 13,
            "ret.nvmlDeviceGetMemoryInfo_v2": 13,
            "reasons": 8,
        },
    )
    for _ in range(2):
        board = asker.board(1)
        assert (board.temperature_c, board.clock_event_reasons) == (35, ("hw_slowdown",))
        assert board.memory_used_mib == 231_000


def test_a_lost_gpu_is_lost_and_the_others_are_read(node: SimulatedNode, asker: Asker) -> None:
    asker.sweep()
    node.break_(5, {"ret.*": 15})
    boards = asker.sweep().boards
    assert [board.state for board in boards] == ["ok"] * 5 + ["lost"] + ["ok"] * 2
    assert (boards[5].power_w, boards[5].utilization_pct) == (None, None)
    node.break_(5, {})
    assert asker.board(5).state == "ok"


def test_a_gpu_that_is_lost_when_we_start_is_told_and_named_once_it_can_be(
    node: SimulatedNode, asker: Asker
) -> None:
    node.break_(5, {"ret.*": 15})
    board = asker.board(5)
    assert (board.uuid, board.index, board.state) == ("unknown-index-5", 5, "lost")
    node.break_(5, {})
    assert asker.sweeps(10).boards[5].uuid == "GPU-5"


def test_a_board_without_power_and_utilization_is_unreadable(node: SimulatedNode, asker: Asker) -> None:
    node.break_(5, {"ret.*": 17})
    board = asker.sweeps(2).boards[5]
    assert board.state == "unreadable"
    assert board.missing["power"] == "operating_system"


def test_an_unplugged_gpu_stays_in_the_list_as_lost_and_comes_back(node: SimulatedNode, asker: Asker) -> None:
    asker.sweep()
    node.set(count=7)
    sweep = asker.sweeps(10)
    assert [board.state for board in sweep.boards] == ["ok"] * 7 + ["lost"]
    assert sweep.boards[7].detail == "no longer listed by the driver"
    node.set(count=8)
    assert asker.sweeps(10).boards[7].state == "ok"


def test_a_name_that_is_not_text_costs_only_the_name(node: SimulatedNode, asker: Asker) -> None:
    node.order(6, model="\\xff\\xfe B300")
    board = asker.board(6)
    assert (board.model, board.state, board.power_w) == ("", "ok", 906)


def test_a_process_list_names_who_holds_how_much(node: SimulatedNode, asker: Asker) -> None:
    node.order(0, procs=[(os.getpid(), 230_480)])
    sweep = asker.sweep()
    assert sweep.boards[0].processes == ((os.getpid(), 230_480.0),)
    assert sweep.boards[1].processes == ()


def test_the_process_list_is_read_every_fifth_sweep_or_when_memory_moves(
    node: SimulatedNode, asker: Asker
) -> None:
    read = [asker.board(0).processes is not None for _ in range(6)]
    assert read == [True, False, False, False, False, True]
    asker.sweep()
    node.order(0, memory_used_mib=100, procs=[(os.getpid(), 100)])
    assert asker.board(0).processes == ((os.getpid(), 100.0),)


@pytest.mark.parametrize(
    "pids", ["0", "4294967295", "{pid}:5,0:3"], ids=["zero", "u32-max", "one good one bad"]
)
def test_a_list_with_an_impossible_pid_is_thrown_away_whole(
    node: SimulatedNode, asker: Asker, pids: str
) -> None:
    node.break_(0, {"procs": pids.format(pid=os.getpid())})
    board = asker.board(0)
    assert board.processes is None
    assert board.missing["processes"] == "implausible"


def test_a_garbled_list_is_replaced_by_the_older_one(node: SimulatedNode, asker: Asker) -> None:
    node.break_(0, {"procs": "0:1,4294967295:2", "procs_v2": f"{os.getpid()}:1048576"})
    assert asker.board(0).processes == ((os.getpid(), 1.0),)


def test_pids_of_another_namespace_are_not_known_rather_than_none(node: SimulatedNode, asker: Asker) -> None:
    nobody = int(Path("/proc/sys/kernel/pid_max").read_text()) - 1
    node.break_(0, {"procs": f"{nobody}:1048576"})
    board = asker.board(0)
    assert board.processes is None
    assert board.missing["processes"] == "pids_unresolved"


def test_an_xid_is_told_once(node: SimulatedNode, asker: Asker) -> None:
    assert asker.sweep().xids == ()
    node.set(events=[(8, 3, 79)])
    assert asker.sweep().xids == (("GPU-3", 79),)
    assert asker.sweep().xids == ()


@pytest.mark.parametrize(
    ("init", "reason"),
    [(9, "driver_not_loaded"), (18, "version_mismatch"), (999, "unknown_error"), (4, "no_permission")],
)
def test_an_nvml_that_cannot_be_initialised_is_one_answer_and_an_end(
    node: SimulatedNode, asker: Asker, init: int, reason: str
) -> None:
    node.set(init=init)
    failed = asker.sweep().failed
    assert failed is not None
    assert failed.reason == reason
    assert isinstance(asker.process.answer(10), Ended)


def test_a_driver_that_is_replaced_under_us_ends_the_process(node: SimulatedNode, asker: Asker) -> None:
    asker.sweep()
    node.break_(2, {"ret.nvmlDeviceGetUtilizationRates": 18})
    failed = asker.sweep().failed
    assert failed is not None
    assert failed.reason == "version_mismatch"


def test_boards_that_all_say_unknown_error_are_a_driver_taken_from_us(
    node: SimulatedNode, asker: Asker
) -> None:
    asker.sweep()
    for index in range(8):
        node.break_(index, {"ret.*": 999})
    failed = asker.sweep().failed
    assert failed is not None
    assert "/dev/nvidia" in failed.detail


def test_a_late_call_leaves_its_name_behind(node: SimulatedNode, asker: Asker) -> None:
    asker.sweep()
    node.break_(6, {"delay.nvmlDeviceGetUtilizationRates": 60_000})
    asker.process.ask(2)
    assert asker.process.answer(1) is None
    assert asker.process.standing_in() == (6, "nvmlDeviceGetUtilizationRates")


def test_without_the_library_the_loader_s_own_words_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    asker = Asker()
    failed = asker.sweep().failed
    asker.process.close()
    asker.process._process.wait()
    assert failed is not None
    assert failed.reason == "library_not_found"
    assert str(tmp_path) in failed.detail


def test_the_process_leaves_when_the_agent_hangs_up(node: SimulatedNode, asker: Asker) -> None:
    asker.sweep()
    asker.process.hang_up()
    assert asker.process._process.wait(timeout=10) == 0
