"""A clock that moves only when it is told to or slept on, so that an hour takes milliseconds. Never reads the real time."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

# How often the loop may turn before the time moves on: whoever became ready at this moment runs first.
_TURNS = 10


class FakeClock:
    """Virtual time: `now` and `monotonic` advance together; `sleep` and `pause` advance them and return at once.

    With several tasks asleep, they wake in the order of their waking moments, and each advances the time only as far as
    its own: two sleepers of 10 s started together both wake at +10 s.

    Args:
        start: the first `now`, Unix seconds.
        on_sleep: called with the seconds of every sleep and pause, before the time moves.
    """

    def __init__(
        self, start: float = 1_764_540_000.0, on_sleep: Callable[[float], None] | None = None
    ) -> None:
        self._now = start
        self._monotonic = 1000.0
        self._on_sleep = on_sleep
        self._tickets = count()
        self._sleepers: list[tuple[float, int]] = []
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let this many seconds pass."""
        self._now += seconds
        self._monotonic += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as NTP or a person does; the monotonic clock does not notice."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self._note(seconds)
        ticket = (self._monotonic + max(0.0, seconds), next(self._tickets))
        heapq.heappush(self._sleepers, ticket)
        try:
            first_for = 0
            while first_for < _TURNS:
                await asyncio.sleep(0)  # noqa: TID251
                first_for = first_for + 1 if self._sleepers[0] == ticket else 0
            self.advance(max(0.0, ticket[0] - self._monotonic))
        finally:
            self._sleepers.remove(ticket)
            heapq.heapify(self._sleepers)

    def pause(self, seconds: float) -> None:
        self._note(seconds)
        self.advance(max(0.0, seconds))

    def _note(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self._on_sleep is not None:
            self._on_sleep(seconds)
