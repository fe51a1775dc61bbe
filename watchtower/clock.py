"""The only file that reads the time or sleeps; everything else is handed a Clock, so that an hour takes milliseconds in a test."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Wall-clock time in Unix seconds (UTC)."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never steps; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for this long; zero or less only yields."""
        ...

    def pause(self, seconds: float) -> None:
        """Block the calling thread for this long (agent threads and demo programs; never on an event loop)."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        """Unix seconds from the wall clock."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds from CLOCK_MONOTONIC."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(max(0, seconds))

    def pause(self, seconds: float) -> None:
        """Sleep in this thread."""
        time.sleep(max(0, seconds))
