import signal
from collections.abc import Callable

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.sampler import FakeSampler
from watchtower.agent.nvml.parent import NvmlReader, Patience
from watchtower.agent.nvml.protocol import Sweep


class Bench:
    """A reader on sampling processes that never exist."""

    def __init__(self, prepare: Callable[[FakeSampler], None] = lambda sampler: None) -> None:
        self.clock = FakeClock()
        self.samplers: list[FakeSampler] = []
        self.sweeps: list[Sweep] = []
        self._prepare = prepare
        self.reader = NvmlReader(self._start, self.sweeps.append, self.clock, Patience())

    def _start(self) -> FakeSampler:
        sampler = FakeSampler(self.clock, pid=100 + len(self.samplers))
        self._prepare(sampler)
        self.samplers.append(sampler)
        return sampler

    def turn_for(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            before = self.clock.monotonic()
            self.reader.turn()
            if self.clock.monotonic() == before:
                self.clock.advance(1.0)

    @property
    def state(self) -> str:
        return self.reader.status().state


def silent(sampler: FakeSampler) -> None:
    sampler.mode = "silent"


def immortal(sampler: FakeSampler) -> None:
    sampler.mode, sampler.immortal = "silent", True


def test_before_the_first_answer_it_says_that_it_is_starting() -> None:
    status = Bench().reader.status()
    assert (status.state, status.detail) == ("unresponsive", "starting: NVML has not answered yet")


def test_each_answer_is_delivered_once_and_all_is_well() -> None:
    bench = Bench()
    bench.turn_for(3)
    assert [sweep.sweep for sweep in bench.sweeps] == [1, 2, 3]
    status = bench.reader.status()
    assert (status.state, status.since, status.detail) == ("ok", None, None)
    assert len(bench.samplers) == 1


def test_an_answer_that_is_a_little_late_is_no_finding() -> None:
    bench = Bench()
    bench.turn_for(2)
    bench.samplers[0].mode = "silent"
    bench.turn_for(4.5)
    assert bench.state == "ok"


def test_a_late_answer_is_told_with_gpu_call_state_and_since_when() -> None:
    bench = Bench()
    bench.turn_for(2)
    bench.samplers[0].mode = "silent"
    asked_at = bench.clock.now()
    bench.turn_for(8)
    status = bench.reader.status()
    assert status.state == "unresponsive"
    assert status.detail == "GPU 3: nvmlDeviceGetFieldValues has not returned (process 100 in state D)"
    assert status.since == pytest.approx(asked_at)


def test_a_driver_that_comes_back_is_well_again_without_a_new_process() -> None:
    bench = Bench()
    bench.turn_for(2)
    bench.samplers[0].mode = "silent"
    bench.turn_for(30)
    bench.samplers[0].mode = "answer"
    bench.turn_for(1)
    assert bench.state == "ok"
    assert len(bench.samplers) == 1
    assert bench.samplers[0].signals == []


def test_a_process_inside_a_call_is_left_alone_for_a_minute_then_asked_to_leave() -> None:
    bench = Bench()
    bench.turn_for(2)
    bench.samplers[0].mode = "silent"
    bench.turn_for(59)
    assert bench.samplers[0].signals == []
    bench.turn_for(2)
    assert bench.samplers[0].signals == [signal.SIGTERM]


def test_a_process_that_cannot_be_ended_gets_one_replacement_and_no_more() -> None:
    bench = Bench(immortal)
    bench.turn_for(3600)
    assert len(bench.samplers) == 2
    assert bench.samplers[0].signals[:2] == [signal.SIGTERM, signal.SIGKILL]
    assert bench.reader.stuck == 2
    assert bench.state == "unresponsive"


def test_when_the_stuck_ones_end_at_last_reading_goes_on_by_itself() -> None:
    modes = iter(["silent", "silent", "answer"])

    def prepare(sampler: FakeSampler) -> None:
        sampler.mode = next(modes)
        sampler.immortal = sampler.mode == "silent"

    bench = Bench(prepare)
    bench.turn_for(3600)
    assert bench.state == "unresponsive"
    for sampler in bench.samplers:
        sampler.left = True
    bench.turn_for(120)
    assert bench.state == "ok"
    assert bench.reader.stuck == 0
    assert all(sampler.closed for sampler in bench.samplers[:2])


def test_processes_that_end_at_once_are_started_again_ever_more_rarely() -> None:
    def ended(sampler: FakeSampler) -> None:
        sampler.mode = "ended"

    bench = Bench(ended)
    bench.turn_for(60)
    early = len(bench.samplers)
    bench.turn_for(600)
    assert early <= 7
    assert len(bench.samplers) - early <= 11
    assert bench.state == "unresponsive"


def test_a_program_that_cannot_be_started_is_absent_with_its_reason() -> None:
    def missing() -> FakeSampler:
        raise FileNotFoundError(2, "No such file or directory", "/opt/sampler")

    reader = NvmlReader(missing, lambda sweep: None, FakeClock())
    reader.turn()
    status = reader.status()
    assert status.state == "absent"
    assert "/opt/sampler" in (status.detail or "")


def test_released_means_no_process_until_the_time_is_over() -> None:
    bench = Bench()
    bench.turn_for(2)
    bench.reader.release(10)
    bench.turn_for(2)
    assert bench.state == "released"
    assert bench.samplers[0].left
    bench.turn_for(9 * 60)
    assert len(bench.samplers) == 1
    bench.turn_for(90)
    assert bench.state == "ok"
    assert len(bench.samplers) == 2


def test_a_release_of_zero_minutes_takes_the_gpus_up_again_now() -> None:
    bench = Bench()
    bench.turn_for(2)
    bench.reader.release(10)
    bench.turn_for(2)
    bench.reader.release(0)
    bench.turn_for(2)
    assert bench.state == "ok"


def test_a_release_during_a_wedge_says_that_the_driver_is_still_held() -> None:
    bench = Bench(immortal)
    bench.turn_for(40)
    bench.reader.release(10)
    bench.turn_for(3)
    status = bench.reader.status()
    assert status.state == "released"
    assert "still hold the driver" in (status.detail or "")
