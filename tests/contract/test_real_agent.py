"""The agent's own server, asked by the poller itself over a socket: nothing in between is a stand-in but the boards."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from tests.fakes.clock import FakeClock
from watchtower import wire
from watchtower.agent.history import History, Reading
from watchtower.agent.requests import Health
from watchtower.agent.server import AgentServer
from watchtower.clock import SystemClock
from watchtower.model import NvmlState, Observation, PollFailure
from watchtower.poller.ask import Asker
from watchtower.poller.schedule import PollSchedule
from watchtower.poller.settings import PollSettings
from watchtower.poller.targets import Agent
from watchtower.poller.tls import client_context

REAL = SystemClock()
TOKEN = "a-token-of-some-length"


class Node:
    """One board and one rank, in an agent's real memory; each `life` is another start of the agent."""

    def __init__(self, clock: FakeClock, life: str) -> None:
        self._clock = clock
        self.history = History(
            "gpu-a",
            wire.AgentInfo(version="0.1.0", started_at=clock.now(), boot_id=life),
            clock,
            nvml=lambda: wire.Nvml(driver_version="580.95.05"),
            gpus=lambda: (wire.Gpu("GPU-1", 0, model="NVIDIA B300 SXM6 AC", power_limit_w=1100.0),),
            life=life,
        )
        self.history.set_ranks((wire.Rank("slurm-1", 7, rank=0, world_size=1, gpu_uuids=("GPU-1",)),))

    def sample(self, power_w: float) -> None:
        """One sweep, a second after the last."""
        self._clock.advance(1.0)
        self.history.add_readings([Reading("GPU-1", power_w, 99.0, 41.0, 1785.0, 231_004.0)])

    def step(self, number: int) -> None:
        """The trainer says that it has completed a step."""
        self.history.add_happenings(progress=[wire.Progress("slurm-1", self._clock.now(), step=number)])

    # -- what the server asks of its memory

    def snapshot(self, after: str | None) -> wire.Snapshot:
        return self.history.snapshot(after)

    def health(self) -> Health:
        return Health(True, None)

    def metrics(self) -> bytes:
        return b""

    def release(self, minutes: float) -> None:
        raise AssertionError("nobody asked for that")


@contextmanager
def serving(node: Node, port: int = 0) -> Iterator[int]:
    """The agent's server until the block ends; gives its port."""
    with _Process(("127.0.0.1", port), node, REAL, token=TOKEN) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
            for connection in server.taken:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Process(AgentServer):
    """Takes its connections along when it ends, as a process does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.taken: list[socket.socket] = []
        super().__init__(*args, **options)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = super().get_request()
        self.taken.append(connection)
        return connection, peer


@asynccontextmanager
async def polling(port: int, clock: FakeClock, *, token: str | None = TOKEN) -> AsyncIterator[PollSchedule]:
    """The poller, asking five times a second until the block ends."""
    asker = Asker(context=client_context(PollSettings()), timeout_s=2.0, token=token)
    stamps = _Stamps(clock)
    schedule = PollSchedule(asker=asker, clock=stamps, interval_s=0.2, on_poll=lambda outcome, seconds: None)
    await schedule.retarget([Agent("gpu-a", f"http://127.0.0.1:{port}")])
    running = asyncio.create_task(schedule.run())
    try:
        yield schedule
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asker.aclose()


class _Stamps(SystemClock):
    """Waits in real time, as sockets do, and stamps with the node's own clock, so that ages are exact."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()


async def until(schedule: PollSchedule, wanted: Callable[[Observation], bool]) -> list[Observation]:
    """Take what the polls bring, as the rounds do, until one of them is what is waited for."""
    deadline = REAL.monotonic() + 20.0
    taken: list[Observation] = []
    while not any(map(wanted, taken)):
        assert REAL.monotonic() < deadline, taken
        await REAL.sleep(0.02)
        taken += schedule.take()
    return taken


def watts(observations: list[Observation]) -> dict[float, float | None]:
    """When was which power drawn, on the watcher's clock: a sample that came twice stands here once."""
    return {
        round(seen.at - age, 3): power
        for seen in observations
        if seen.reading is not None
        for gpu in seen.reading.gpus
        for age, power, *_ in gpu.samples
    }


def steps(observations: list[Observation]) -> list[int | None]:
    return [said.step for seen in observations if seen.reading for said in seen.reading.progress]


def has_step(number: int) -> Callable[[Observation], bool]:
    return lambda seen: number in steps([seen])


async def test_a_poll_brings_all_there_is_and_the_next_only_what_is_new() -> None:
    clock = FakeClock()
    node = Node(clock, "one")
    for power in (901.0, 902.0, 903.0):
        node.sample(power)
    node.step(3850)
    with serving(node) as port:
        async with polling(port, clock) as schedule:
            first = await until(schedule, has_step(3850))
            reading = first[0].reading
            assert reading is not None
            assert reading.nvml_state is NvmlState.OK
            assert [(rank.run_id, rank.rank, rank.gpu_uuids) for rank in reading.ranks] == [
                ("slurm-1", 0, ("GPU-1",))
            ]
            now = clock.now()
            assert watts(first) == {now - 2: 901.0, now - 1: 902.0, now: 903.0}
            node.sample(904.0)
            node.step(3851)
            later = await until(schedule, has_step(3851))
            newest = [seen for seen in later if has_step(3851)(seen)]
            assert watts(newest) == {clock.now(): 904.0}
            assert steps(newest) == [3851]


async def test_an_agent_that_restarts_loses_nothing_it_still_has_and_is_not_asked_for_what_it_never_had() -> (
    None
):
    clock = FakeClock()
    before = Node(clock, "one")
    for power in (901.0, 902.0):
        before.sample(power)
    before.step(1)
    first_life = serving(before)
    port = first_life.__enter__()
    async with polling(port, clock) as schedule:
        try:
            taken = await until(schedule, has_step(1))
            assert dict(schedule.cursors())["gpu-a"].startswith("one-")
        finally:
            first_life.__exit__(None, None, None)
        taken += await until(schedule, lambda seen: seen.failed is PollFailure.REFUSED)
        after = Node(clock, "two")
        for power in (903.0, 904.0, 905.0):
            after.sample(power)
        after.step(2)
        with serving(after, port):
            taken += await until(schedule, has_step(2))
            assert dict(schedule.cursors())["gpu-a"].startswith("two-")
    now = clock.now()
    assert watts(taken) == {now - 4: 901.0, now - 3: 902.0, now - 2: 903.0, now - 1: 904.0, now: 905.0}
    assert steps(taken) == [1, 2]


async def test_without_the_token_nothing_is_told() -> None:
    clock = FakeClock()
    with serving(Node(clock, "one")) as port:
        for token in (None, "another-token-of-some-length"):
            async with polling(port, clock, token=token) as schedule:
                seen = await until(schedule, lambda seen: seen.failed is not None)
                assert {one.failed for one in seen} == {PollFailure.UNAUTHORIZED}
                assert schedule.cursors() == ()
