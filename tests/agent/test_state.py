from collections.abc import Sequence

from tests.fakes.clock import FakeClock
from watchtower import wire
from watchtower.agent.node.side import GpuProcess, NodeReport
from watchtower.agent.nvml.protocol import Board, Sweep
from watchtower.agent.state import AgentState


class FakeReader:
    """A reader whose NVML is as the test says."""

    starts = 1
    stuck = 0

    def __init__(self) -> None:
        self.nvml = wire.Nvml("ok", "580.95.05")

    def status(self) -> wire.Nvml:
        return self.nvml

    def release(self, minutes: float) -> None:
        self.nvml = wire.Nvml("released", detail=f"{minutes:g} min")


class FakeSide:
    """A node side that finds what the test says."""

    def __init__(self) -> None:
        self.report = NodeReport((), (), (), (), ())
        self.given: list[tuple[GpuProcess, ...]] = []

    def look(self, gpu_processes: Sequence[GpuProcess]) -> NodeReport:
        self.given.append(tuple(gpu_processes))
        return self.report


def sweep(**more: object) -> Sweep:
    boards = [
        Board(uuid="GPU-a", index=0, power_w=900.0, processes=((7, 5.0),)),
        Board(uuid="GPU-b", index=1, state="lost"),
    ]
    return Sweep(sweep=1, boards=tuple(boards), **more)  # type: ignore[arg-type]


def running() -> tuple[AgentState, FakeReader, FakeSide, FakeClock]:
    clock, reader, side = FakeClock(), FakeReader(), FakeSide()
    state = AgentState("gpu-a", wire.AgentInfo("0.1.0"), clock, keep_s=600)
    state.attach(reader)
    return state, reader, side, clock


def test_it_is_healthy_once_gpus_and_processes_have_been_looked_at() -> None:
    state, _, side, _ = running()
    assert state.health().reason == "the GPUs have not been read yet"
    state.take(sweep())
    assert state.health().reason == "the processes have not been looked at yet"
    state.look(side)
    assert (state.health().fresh, state.health().reason) == (True, None)


def test_old_data_is_not_healthy() -> None:
    state, _, side, clock = running()
    state.take(sweep())
    state.look(side)
    clock.advance(15)
    assert state.health().fresh
    clock.advance(1)
    assert state.health().reason == "GPUs last read 16 s ago"
    clock.advance(15)
    state.take(sweep())
    assert state.health().reason == "processes last looked at 31 s ago"


def test_an_nvml_that_is_not_ok_is_not_healthy_with_its_reason() -> None:
    state, reader, side, _ = running()
    state.take(sweep())
    state.look(side)
    state.release(5)
    assert state.health().reason == "NVML is released: 5 min"
    assert reader.nvml.state == "released"


def test_a_lost_board_gets_no_sample_and_the_others_do() -> None:
    state, _, _, _ = running()
    state.take(sweep())
    gpus = state.snapshot(None).gpus
    assert [(gpu.uuid, gpu.state, len(gpu.samples)) for gpu in gpus] == [
        ("GPU-a", "ok", 1),
        ("GPU-b", "lost", 0),
    ]


def test_the_node_side_is_given_the_process_lists_and_its_finds_are_told() -> None:
    state, _, side, clock = running()
    state.take(sweep())
    side.report = NodeReport(
        (wire.Rank("r", 7),),
        (wire.Exit("r", 6, clock.now()),),
        (wire.Progress("r", clock.now(), step=5),),
        (wire.Event(clock.now(), "oom_kill"),),
        ("the kernel's log cannot be read",),
    )
    state.look(side)
    snapshot = state.snapshot(None)
    assert side.given == [(GpuProcess(7, "GPU-a", 5.0),)]
    assert (len(snapshot.ranks), len(snapshot.exits), len(snapshot.progress), len(snapshot.events)) == (
        1,
        1,
        1,
        1,
    )
    assert state.health().blind == ("the kernel's log cannot be read",)


def test_an_xid_of_nvml_is_told_once_by_the_looks_that_follow() -> None:
    state, _, side, clock = running()
    state.take(sweep(xids=(("GPU-b", 79),)))
    for _ in range(10):
        state.look(side)
        clock.advance(1)
    events = state.snapshot(None).events
    assert [(e.kind, e.gpu_uuid, e.code) for e in events] == [("xid", "GPU-b", 79)]


def test_the_metrics_count_boards_by_state() -> None:
    state, _, _, clock = running()
    assert b"sample_age" not in state.metrics()
    state.take(sweep())
    clock.advance(2)
    text = state.metrics().decode()
    assert 'watchtower_agent_gpus{state="ok"} 1.0' in text
    assert 'watchtower_agent_gpus{state="lost"} 1.0' in text
    assert "watchtower_agent_sample_age_seconds 2.0" in text
    assert 'watchtower_agent_nvml_state{state="ok"} 1.0' in text
    assert 'driver_version="580.95.05"' in text
