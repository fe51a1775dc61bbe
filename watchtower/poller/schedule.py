"""Asks every agent once an interval, each at its own moment, and keeps the answers until the round takes them. Judges nothing."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from watchtower.clock import Clock
from watchtower.model import NvmlState, Observation, PollFailure
from watchtower.poller.failure import Failed
from watchtower.poller.targets import Agent
from watchtower.poller.translate import observe
from watchtower.wire import WIRE_VERSION, Nvml, Snapshot

_log = logging.getLogger(__name__)

# Waking for each agent alone costs more than the polls themselves; once per slice is half of that.
SLICE_S = 0.2
_CANNOT_READ = {NvmlState.ABSENT, NvmlState.UNRESPONSIVE}  # released: somebody wanted it so
# One late answer is not a lost agent; two are worth a line.
_LOST_AFTER_POLLS = 2


class Asks(Protocol):
    """What the schedule needs of an asker."""

    async def ask(self, agent: Agent, cursor: str) -> Snapshot | Failed:
        """One poll; every failure is a value."""
        ...

    async def forget(self, agent: Agent) -> None:
        """This agent is not asked again."""
        ...


class AgentView(msgspec.Struct, frozen=True):
    """How one agent answers, for status and metrics; times are the watcher's."""

    node: str
    url: str
    answered_at: float | None
    failed: PollFailure | None  # of the newest poll
    failing_since: float | None
    agent_version: str | None
    nvml_state: str | None
    nvml_detail: str | None = None  # in the agent's own words
    failed_detail: str | None = None


class _Seat:
    """What is known of one agent between two polls."""

    def __init__(self, agent: Agent, slot: int) -> None:
        self.agent = agent
        self.slot = slot
        self.cursor = ""  # of the newest answer that was taken
        self.waiting: list[
            tuple[Observation, str]
        ] = []  # not yet taken, each with the cursor that follows it
        self.task: asyncio.Task[None] | None = None
        self.answered_at: float | None = None
        self.failed: Failed | None = None
        self.failing_since: float | None = None
        self.failures = 0
        self.agent_version: str | None = None
        self.nvml: Nvml | None = None
        self.oddity: str | None = None


class PollSchedule:
    """Runs the polls. There is no common limit that a dead rack could fill: an agent waits for itself alone.

    Args:
        asker: asks one agent.
        clock: for stamps and for waiting.
        interval_s: each agent is asked once in this time.
        on_poll: told the outcome ("ok" or the failure) and the seconds of every poll.
        cursors: node -> where an earlier process stood with it.
    """

    def __init__(
        self,
        *,
        asker: Asks,
        clock: Clock,
        interval_s: float,
        on_poll: Callable[[str, float], None],
        cursors: Mapping[str, str] | None = None,
    ) -> None:
        self._earlier = dict(cursors or {})
        self._clock = clock
        self._on_poll = on_poll
        self._seats: dict[str, _Seat] = {}
        self.adopt(asker, interval_s)

    def adopt(self, asker: Asks, interval_s: float) -> None:
        """Ask through another asker, at another pace, from the next `run` on; what is known of each agent stays."""
        self._asker = asker
        self._interval_s = interval_s
        self._slots = max(1, round(interval_s / SLICE_S))
        for seat in self._seats.values():
            seat.slot = slot_of(seat.agent.name, self._slots)

    async def retarget(self, agents: Sequence[Agent]) -> bool:
        """Ask these agents from now on; one that stays keeps its cursor, one that left is forgotten.

        Returns:
            Whether anything changed.
        """
        wanted = {agent.name: agent for agent in agents}
        gone = [seat for name, seat in self._seats.items() if wanted.get(name) != seat.agent]
        fresh = [
            agent for name, agent in wanted.items() if name not in self._seats or self._seats[name] in gone
        ]
        for seat in gone:
            del self._seats[seat.agent.name]
            await _cancel(seat.task)
            await self._asker.forget(seat.agent)
        for agent in fresh:
            seat = _Seat(agent, slot_of(agent.name, self._slots))
            seat.cursor = self._earlier.pop(agent.name, "")
            self._seats[agent.name] = seat
        if gone or fresh:
            _log.info("agents_changed now=%d added=%d removed=%d", len(self._seats), len(fresh), len(gone))
        return bool(gone or fresh)

    async def run(self) -> None:
        """Poll until cancelled."""
        width = self._interval_s / self._slots
        start = self._clock.monotonic()
        turn = 0
        try:
            while True:
                self._ask_slot(turn % self._slots)
                turn += 1
                late_by = self._clock.monotonic() - (start + turn * width)
                if late_by > self._interval_s:
                    # A suspended machine or a blocked loop: missed turns are not made up for in a burst.
                    turn += int(late_by / width)
                await self._clock.sleep(start + turn * width - self._clock.monotonic())
        finally:
            for seat in self._seats.values():
                await _cancel(seat.task)

    def take(self) -> list[Observation]:
        """Hand over every answer since the last call, in order of time; cursors move on with it."""
        taken: list[Observation] = []
        for seat in self._seats.values():
            for observation, cursor in seat.waiting:
                taken.append(observation)
                seat.cursor = cursor
            seat.waiting.clear()
        taken.sort(key=lambda observation: observation.at)
        return taken

    def cursors(self) -> tuple[tuple[str, str], ...]:
        """(node, cursor) of every agent, as of the answers taken; to be kept only together with what was made of them."""
        return tuple((name, seat.cursor) for name, seat in self._seats.items() if seat.cursor)

    def agents(self) -> tuple[AgentView, ...]:
        """How every agent answers now, in order of name."""
        return tuple(
            AgentView(
                seat.agent.name,
                seat.agent.url,
                seat.answered_at,
                seat.failed.reason if seat.failed else None,
                seat.failing_since,
                seat.agent_version,
                seat.nvml.state if seat.nvml else None,
                seat.nvml.detail if seat.nvml else None,
                seat.failed.detail if seat.failed else None,
            )
            for seat in sorted(self._seats.values(), key=lambda seat: seat.agent.name)
        )

    def _ask_slot(self, slot: int) -> None:
        for seat in self._seats.values():
            if seat.slot == slot and (seat.task is None or seat.task.done()):
                seat.task = asyncio.create_task(self._poll(seat), name=f"poll {seat.agent.name}")

    async def _poll(self, seat: _Seat) -> None:
        began = self._clock.monotonic()
        answer = await self._asker.ask(seat.agent, seat.cursor)
        at = self._clock.now()
        self._on_poll(
            answer.reason.value if isinstance(answer, Failed) else "ok", self._clock.monotonic() - began
        )
        if isinstance(answer, Failed):
            self._note_failure(seat, answer, at)
            seat.waiting.append((Observation(at, seat.agent.name, failed=answer.reason), seat.cursor))
            return
        self._note_answer(seat, answer, at)
        # Asked with the same cursor, this answer holds all that an untaken one held: it takes its place.
        seat.waiting = [(kept, cursor) for kept, cursor in seat.waiting if kept.reading is None]
        seat.waiting.append((observe(answer, at=at, node=seat.agent.name), answer.cursor))

    def _note_failure(self, seat: _Seat, failed: Failed, at: float) -> None:
        seat.failures += 1
        seat.failed = failed
        if seat.failing_since is None:
            seat.failing_since = at
        if failed.reason is PollFailure.BAD_REPLY:
            seat.cursor = ""  # perhaps it is the cursor that it cannot read
        if seat.failures == _LOST_AFTER_POLLS:
            _log.warning(
                "agent_lost node=%s url=%s reason=%s detail=%r",
                seat.agent.name,
                seat.agent.url,
                failed.reason.value,
                failed.detail,
            )

    def _note_answer(self, seat: _Seat, answer: Snapshot, at: float) -> None:
        if seat.failures >= _LOST_AFTER_POLLS and seat.failing_since is not None:
            _log.info("agent_back node=%s silent_s=%.0f", seat.agent.name, at - seat.failing_since)
        seat.failures, seat.failed, seat.failing_since = 0, None, None
        seat.answered_at = at
        seat.agent_version = answer.agent.version
        self._note_nvml(seat, answer.nvml)
        oddity = _oddity(answer, seat.agent.name)
        if oddity is not None and oddity != seat.oddity:
            _log.warning("agent_odd node=%s %s", seat.agent.name, oddity)
        seat.oddity = oddity

    def _note_nvml(self, seat: _Seat, nvml: Nvml) -> None:
        could = seat.nvml is None or seat.nvml.state not in _CANNOT_READ
        if nvml.state in _CANNOT_READ:
            if could:
                detail = (nvml.detail or "")[:160]
                _log.warning("gpus_unread node=%s nvml=%s detail=%r", seat.agent.name, nvml.state, detail)
        elif not could:
            _log.info("gpus_read_again node=%s nvml=%s", seat.agent.name, nvml.state)
        seat.nvml = nvml


def slot_of(name: str, slots: int) -> int:
    """Which slice of the interval an agent is asked in: the same after every restart, and spread over the fleet."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % slots


def _oddity(answer: Snapshot, node: str) -> str | None:
    if answer.wire != WIRE_VERSION:
        return f"wire={answer.wire} ours={WIRE_VERSION} (read as far as both know it)"
    if answer.node not in {node, node.partition(":")[0], node.partition(".")[0]}:
        return f"calls_itself={answer.node[:80]!r} (known here by the target's name)"
    return None


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is None:
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
