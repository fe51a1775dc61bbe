"""Keeps CPU and storage counters of a rank with its children, so that they never fall. Reads /proc, judges nothing."""

import os

import msgspec

from watchtower.agent.node.proc import Absent, Proc, ProcessKey

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MAX_DESCENDANTS = 256
_MAX_DEPTH = 3


class Usage(msgspec.Struct, frozen=True):
    """Counters since the process was first seen, plus what it had used by then."""

    cpu_s: float
    read_bytes: float | None  # None: /proc/PID/io may not be read
    write_bytes: float | None


class UsageCounter:
    """Counters of one rank. A child that is waited for moves into its parent's numbers; it must not count twice, nor vanish."""

    def __init__(self, proc: Proc, pid: int) -> None:
        self._proc = proc
        self._pid = pid
        self._seen: dict[ProcessKey, tuple[int, int, int]] = {}
        self._parents: dict[ProcessKey, int] = {}
        self._totals = [0, 0, 0]
        self._storage_readable = True

    @property
    def pids(self) -> set[int]:
        """The process and the children seen at the last reading."""
        return {key.pid for key in self._seen}

    def read(self, *, all_threads: bool) -> Usage:
        """Add what was used since the last reading."""
        now: dict[ProcessKey, tuple[int, int, int]] = {}
        parents: dict[ProcessKey, int] = {}
        self._walk(self._pid, 0, now, parents, all_threads=all_threads)
        moved: dict[int, list[int]] = {}
        for key, used in self._seen.items():
            if key not in now:
                into = moved.setdefault(self._parents.get(key, 0), [0, 0, 0])
                for index in range(3):
                    into[index] += used[index]
        for key, used in now.items():
            before = self._seen.get(key, (0, 0, 0))
            taken_over = moved.get(key.pid, [0, 0, 0])
            for index in range(3):
                self._totals[index] += max(0, used[index] - before[index] - taken_over[index])
        self._seen, self._parents = now, parents
        cpu, read, written = self._totals
        if not self._storage_readable:
            return Usage(cpu / _TICKS_PER_S, None, None)
        return Usage(cpu / _TICKS_PER_S, float(read), float(written))

    def _walk(
        self,
        pid: int,
        depth: int,
        now: dict[ProcessKey, tuple[int, int, int]],
        parents: dict[ProcessKey, int],
        *,
        all_threads: bool,
    ) -> None:
        seen = self._proc.stat(pid)
        if seen is None:
            return
        storage = self._proc.storage_bytes(pid)
        if isinstance(storage, Absent):
            if depth == 0 and storage is Absent.DENIED:
                self._storage_readable = False
            storage = self._seen.get(seen.key, (0, 0, 0))[1:]
        now[seen.key] = (seen.cpu_ticks, storage[0], storage[1])
        parents[seen.key] = seen.parent_pid
        if depth < _MAX_DEPTH:
            for child in self._proc.children(pid, all_threads=all_threads and depth == 0):
                if len(now) >= _MAX_DESCENDANTS:
                    return  # ten thousand children: not even looked at
                self._walk(child, depth + 1, now, parents, all_threads=False)
