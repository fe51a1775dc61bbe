"""Runs reads that may never return, each on a thread of its own lane, so that one dead file system stops only itself. Reads nothing."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

_Result = TypeVar("_Result")

MAX_LANES = 6


class Lanes(Generic[_Result]):
    """A small fixed number of threads; per key at most one job is under way. Call from one thread."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[str, Callable[[], _Result]] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[str, _Result | None]] = SimpleQueue()
        self._busy: set[str] = set()
        self._overdue: set[str] = set()
        self._threads = 0
        self._closed = False

    @property
    def busy(self) -> frozenset[str]:
        """Keys whose job has not come back."""
        return frozenset(self._busy)

    def submit(self, key: str, job: Callable[[], _Result]) -> bool:
        """Start a job, unless this key is still under way or every thread is stuck; says whether it was taken.

        The job must turn expected trouble into its result; one that raises gives no result and its lane goes on.
        """
        if self._closed or key in self._busy or len(self._busy) >= MAX_LANES:
            return False
        self._busy.add(key)
        if self._threads < len(self._busy):
            self._threads += 1
            threading.Thread(target=self._work, name=f"read-lane-{self._threads}", daemon=True).start()
        self._jobs.put((key, job))
        return True

    def collect(self, wait_s: float) -> list[_Result]:
        """Results that have come back.

        Waits until all are there, or this long without any coming; what was overdue before is not waited for again.
        """
        found: list[_Result] = []
        while self._busy:
            try:
                key, result = self._done.get(block=bool(self._busy - self._overdue), timeout=wait_s)
            except Empty:
                self._overdue = set(self._busy)
                break
            self._busy.discard(key)
            self._overdue.discard(key)
            if result is not None:
                found.append(result)
        return found

    def close(self) -> None:
        """Let idle threads end; a stuck one is a daemon thread and ends with the process."""
        self._closed = True
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            key, job = taken
            try:
                result: _Result | None = job()
            except OSError:
                result = None
            self._done.put((key, result))
