"""Runs reads that may never return, each on a thread of its own lane, so that one dead file system stops only itself. Reads nothing."""

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

MAX_LANES = 6
# Whoever can make a read hang (a dead mount, a FUSE of his own) may hold up his own reads and not everybody's.
MAX_STUCK_PER_OWNER = 2


class Lanes(Generic[_Result]):
    """A small fixed number of threads; per key at most one job is under way or waits for a thread. Call from one thread."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[str, Callable[[], _Result]] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[str, _Result | None]] = SimpleQueue()
        self._busy: dict[str, int] = {}
        self._overdue: set[str] = set()
        self._threads = 0
        self._closed = False

    @property
    def busy(self) -> frozenset[str]:
        """Keys whose job has not come back."""
        return frozenset(self._busy)

    @property
    def exhausted(self) -> bool:
        """Whether every thread is stuck, so that nothing more can be read."""
        return len(self._overdue) >= MAX_LANES

    def submit(self, key: str, job: Callable[[], _Result], *, owner: int) -> bool:
        """Start a job, unless this key is still under way or too much of its owner's is stuck; says whether it was taken.

        The job must turn expected trouble into its result; one that raises gives no result and its lane goes on.

        Args:
            key: what hangs together.
            job: runs on another thread.
            owner: the user whose files they are.
        """
        stuck = sum(self._busy[overdue] == owner for overdue in self._overdue)
        if self._closed or key in self._busy or stuck >= MAX_STUCK_PER_OWNER:
            return False
        self._busy[key] = owner
        if self._threads < min(len(self._busy), MAX_LANES):
            self._start_thread()
        self._jobs.put((key, job))
        return True

    def collect(self, wait_s: float) -> list[_Result]:
        """Results that have come back.

        Waits until all are there, or this long without any coming; what was overdue before is not waited for again.
        """
        found: list[_Result] = []
        while self._busy:
            try:
                key, result = self._done.get(block=bool(self._busy.keys() - self._overdue), timeout=wait_s)
            except Empty:
                self._overdue = set(self._busy)
                break
            del self._busy[key]
            self._overdue.discard(key)
            if result is not None:
                found.append(result)
        return found

    def close(self) -> None:
        """Let idle threads end; a stuck one is a daemon thread and ends with the process."""
        self._closed = True
        for _ in range(self._threads):
            self._jobs.put(None)

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name=f"read-lane-{self._threads + 1}", daemon=True).start()
        except RuntimeError:
            return  # the node gives us no thread just now: the job waits for another one
        self._threads += 1

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            key, job = taken
            try:
                result: _Result | None = job()
            except OSError:
                result = None
            except Exception as error:  # noqa: BLE001 - what a job wrote must not end a thread that reads for everybody
                # Only its kind: the words of an exception may quote the file.
                logger.error("read_broke error=%s", type(error).__name__)  # noqa: TRY400
                result = None
            self._done.put((key, result))
