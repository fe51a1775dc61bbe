"""When agents are asked, what becomes of their answers, and where the cursor stands."""

import asyncio
from collections.abc import Callable

import pytest

from tests.fakes.clock import FakeClock
from watchtower.model import PollFailure
from watchtower.poller.failure import Failed
from watchtower.poller.schedule import PollSchedule, slot_of
from watchtower.poller.targets import Agent
from watchtower.wire import Nvml, Snapshot

A = Agent("gpu-a", "http://gpu-a:9477")
B = Agent("gpu-b", "http://gpu-b:9477")


class ScriptedAsker:
    """Answers at once with what the script says for the n-th question; remembers the cursors it was given."""

    def __init__(self, script: Callable[[int], Snapshot | Failed]) -> None:
        self._script = script
        self.cursors: list[str] = []
        self.forgotten: list[Agent] = []

    async def ask(self, agent: Agent, cursor: str) -> Snapshot | Failed:
        self.cursors.append(cursor)
        return self._script(len(self.cursors))

    async def forget(self, agent: Agent) -> None:
        self.forgotten.append(agent)


def said(cursor: str) -> Snapshot:
    return Snapshot(wire=1, node="gpu-a", taken_at=1.0, cursor=cursor)


class Bench:
    """A schedule in virtual time, driven one interval at a time."""

    def __init__(self, script: Callable[[int], Snapshot | Failed]) -> None:
        self.clock = FakeClock()
        self.asker = ScriptedAsker(script)
        self.outcomes: list[str] = []
        self.schedule = PollSchedule(
            asker=self.asker,
            clock=self.clock,
            interval_s=5.0,
            on_poll=lambda outcome, _: self.outcomes.append(outcome),
        )

    async def run_until(self, polls: int) -> None:
        task = asyncio.create_task(self.schedule.run())
        while len(self.outcomes) < polls:  # noqa: ASYNC110  virtual time has no event to wait for
            await asyncio.sleep(0)  # noqa: TID251
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_cursor_moves_on_only_when_the_answer_was_taken() -> None:
    bench = Bench(lambda n: said(str(n)))
    await bench.schedule.retarget([A])
    await bench.run_until(2)
    assert bench.asker.cursors == ["", ""]
    assert len(bench.schedule.take()) == 1  # the second holds all that the first held
    await bench.run_until(3)
    assert bench.asker.cursors == ["", "", "2"]
    assert bench.schedule.take()[0].at > 0
    assert bench.schedule.take() == []


async def test_a_failure_between_two_answers_is_handed_over_too() -> None:
    bench = Bench(lambda n: Failed(PollFailure.TIMEOUT) if n == 2 else said(str(n)))
    await bench.schedule.retarget([A])
    await bench.run_until(3)
    assert [observation.failed for observation in bench.schedule.take()] == [PollFailure.TIMEOUT, None]


async def test_a_reply_that_could_not_be_read_starts_again_without_a_cursor() -> None:
    bench = Bench(lambda n: Failed(PollFailure.BAD_REPLY) if n == 2 else said(str(n)))
    await bench.schedule.retarget([A])
    await bench.run_until(1)
    bench.schedule.take()
    await bench.run_until(3)
    assert bench.asker.cursors == ["", "1", ""]


async def test_each_agent_is_asked_once_an_interval_at_its_own_moment() -> None:
    bench = Bench(lambda n: said(str(n)))
    agents = [Agent(f"gpu-{i}", f"http://gpu-{i}:9477") for i in range(200)]
    await bench.schedule.retarget(agents)
    began = bench.clock.monotonic()
    await bench.run_until(600)
    assert bench.clock.monotonic() - began <= 15.0
    observations = bench.schedule.take()
    assert len({observation.at for observation in observations}) > 20
    assert len(observations) == 200


def test_an_agents_slot_is_the_same_after_a_restart_and_slots_fill_evenly() -> None:
    assert slot_of("gpu-a", 25) == slot_of("gpu-a", 25) == 23
    filled = [slot_of(f"gpu-{i:04}", 25) for i in range(1000)]
    assert max(filled.count(slot) for slot in range(25)) < 80


async def test_lost_and_back_are_each_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench = Bench(lambda n: Failed(PollFailure.REFUSED) if 2 <= n <= 6 else said(str(n)))
    await bench.schedule.retarget([A])
    await bench.run_until(6)
    view = bench.schedule.agents()[0]
    assert view.failed is PollFailure.REFUSED
    assert view.failing_since is not None
    await bench.run_until(8)
    words = [record.getMessage().split()[0] for record in caplog.records]
    assert words == ["agents_changed", "agent_lost", "agent_back"]
    assert bench.schedule.agents()[0].failed is None


async def test_an_agent_that_left_is_forgotten_and_one_that_stays_keeps_its_cursor() -> None:
    bench = Bench(lambda n: said(str(n)))
    await bench.schedule.retarget([A, B])
    await bench.run_until(2)
    bench.schedule.take()
    assert await bench.schedule.retarget([A])
    assert not await bench.schedule.retarget([A])
    assert bench.asker.forgotten == [B]
    await bench.run_until(3)
    assert bench.asker.cursors[-1] in {"1", "2"}


async def test_an_agent_whose_address_changed_is_asked_there_from_the_start() -> None:
    bench = Bench(lambda n: said(str(n)))
    await bench.schedule.retarget([A])
    await bench.run_until(1)
    bench.schedule.take()
    moved = Agent("gpu-a", "http://10.0.0.9:9477")
    assert await bench.schedule.retarget([moved])
    await bench.run_until(2)
    assert bench.asker.cursors == ["", ""]
    assert bench.schedule.agents()[0].url == moved.url


async def test_missed_turns_are_not_made_up_for_in_a_burst() -> None:
    bench = Bench(lambda n: said(str(n)))
    await bench.schedule.retarget([A])
    await bench.run_until(1)
    task = asyncio.create_task(bench.schedule.run())
    await asyncio.sleep(0)  # noqa: TID251
    before = len(bench.outcomes)
    bench.clock.advance(600.0)
    until = bench.clock.monotonic() + 10.0
    while bench.clock.monotonic() < until:  # noqa: ASYNC110  virtual time
        await asyncio.sleep(0)  # noqa: TID251
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(bench.outcomes) - before <= 3


async def test_a_node_that_calls_itself_otherwise_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(lambda n: said(str(n)))
    await bench.schedule.retarget([B])
    await bench.run_until(3)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["agent_odd"]


async def test_why_an_agent_is_lost_is_in_the_log_and_in_its_view(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(lambda _: Failed(PollFailure.TLS, "its certificate is not for gpu-b"))
    await bench.schedule.retarget([B])
    await bench.run_until(3)
    view = bench.schedule.agents()[0]
    assert (view.failed, view.failed_detail) == (PollFailure.TLS, "its certificate is not for gpu-b")
    assert [record.getMessage() for record in caplog.records] == [
        "agent_lost node=gpu-b url=http://gpu-b:9477 reason=tls detail='its certificate is not for gpu-b'"
    ]


async def test_gpus_that_cannot_be_read_are_said_once_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "watchtower.poller.schedule")
    gone = Nvml(state="absent", detail="libnvidia-ml.so.1 not found")
    states = {2: gone, 3: gone, 5: Nvml(state="released")}
    bench = Bench(lambda n: Snapshot(wire=1, node="gpu-a", taken_at=1.0, nvml=states.get(n, Nvml())))
    await bench.schedule.retarget([A])
    await bench.run_until(3)
    view = bench.schedule.agents()[0]
    assert (view.nvml_state, view.nvml_detail) == ("absent", "libnvidia-ml.so.1 not found")
    await bench.run_until(6)
    assert [record.getMessage() for record in caplog.records][1:] == [
        "gpus_unread node=gpu-a nvml=absent detail='libnvidia-ml.so.1 not found'",
        "gpus_read_again node=gpu-a nvml=ok",
    ]
