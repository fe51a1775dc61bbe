"""Keeps the last ten minutes of samples, exits, progress and events, and answers what is new since a cursor. Reads no GPU,
opens no socket; asked from many threads.
"""

import itertools
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from watchtower import wire
from watchtower.clock import Clock
from watchtower.model import Sample

KEEP_S = 600.0
# Each list is bounded in number too: a job that writes a progress line a millisecond must not fill the node's memory.
_MAX_KEPT = 5000
# A difference between the two clocks that is only rounding and slewing, not a step.
_STEP_S = 0.5

_Happening = TypeVar("_Happening", wire.Exit, wire.Progress, wire.Event)
_Kept = TypeVar("_Kept")


class Reading(msgspec.Struct, frozen=True, gc=False):
    """One board's numbers in one sweep; None: not known."""

    uuid: str
    power_w: float | None
    utilization_pct: float | None
    mem_utilization_pct: float | None
    sm_clock_mhz: float | None
    memory_used_mib: float | None


class _Line(Generic[_Kept]):
    """What is kept of one kind, oldest first: (sequence number, monotonic time, wall minus monotonic, item)."""

    def __init__(self, most: int) -> None:
        self._kept: deque[tuple[int, float, float, _Kept]] = deque(maxlen=most)

    def add(self, seq: int, at: float, offset: float, item: _Kept) -> None:
        self._kept.append((seq, at, offset, item))

    def forget_before(self, at: float) -> None:
        while self._kept and self._kept[0][1] < at:
            self._kept.popleft()

    def after(self, seq: int) -> list[tuple[int, float, float, _Kept]]:
        """Newer than seq, oldest first; looks only at those and one more."""
        newer = list(itertools.takewhile(lambda kept: kept[0] > seq, reversed(self._kept)))
        newer.reverse()
        return newer


class History:
    """Ten minutes of one node.

    Args:
        node: the node's name.
        agent: who we are.
        clock: the time.
        nvml: how NVML is now.
        gpus: every board as last described, without samples.
        keep_s: how long to keep things.
        life: names this agent's start in its cursors; a random one by default.
    """

    def __init__(
        self,
        node: str,
        agent: wire.AgentInfo,
        clock: Clock,
        *,
        nvml: Callable[[], wire.Nvml],
        gpus: Callable[[], tuple[wire.Gpu, ...]],
        keep_s: float = KEEP_S,
        life: str | None = None,
    ) -> None:
        self._node = node
        self._agent = agent
        self._clock = clock
        self._nvml = nvml
        self._gpus = gpus
        self._keep_s = keep_s
        self._life = life or secrets.token_hex(6)
        self._lock = threading.Lock()
        self._seq = 0
        self._samples: dict[str, _Line[Reading]] = {}
        self._exits: _Line[wire.Exit] = _Line(_MAX_KEPT)
        self._progress: _Line[wire.Progress] = _Line(_MAX_KEPT)
        self._events: _Line[wire.Event] = _Line(_MAX_KEPT)
        self._ranks: tuple[wire.Rank, ...] = ()
        self._sampled_at: float | None = None

    # -- writing ----------------------------------------------------------------------------------------------------

    def add_readings(self, readings: Iterable[Reading]) -> None:
        """One sweep, taken now."""
        now, offset = self._moment()
        with self._lock:
            self._seq += 1
            for reading in readings:
                line = self._samples.get(reading.uuid)
                if line is None:
                    line = self._samples[reading.uuid] = _Line(_MAX_KEPT)
                line.add(self._seq, now, offset, reading)
                line.forget_before(now - self._keep_s)
            self._sampled_at = now

    def set_ranks(self, ranks: tuple[wire.Rank, ...]) -> None:
        """Which training processes there are now."""
        self._ranks = ranks

    def add_happenings(
        self,
        *,
        exits: Sequence[wire.Exit] = (),
        progress: Sequence[wire.Progress] = (),
        events: Sequence[wire.Event] = (),
    ) -> None:
        """What has happened since the last call, each kind oldest first, with times of the node's wall clock."""
        now, offset = self._moment()
        with self._lock:
            self._seq += 1
            for exit_ in exits:
                self._exits.add(self._seq, now, offset, exit_)
            for step in progress:
                self._progress.add(self._seq, now, offset, step)
            for event in events:
                self._events.add(self._seq, now, offset, event)
            for line in (self._exits, self._progress, self._events):
                line.forget_before(now - self._keep_s)

    # -- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self, after: str | None) -> wire.Snapshot:
        """All that is known now, and what is new since a cursor.

        Args:
            after: a cursor that an earlier snapshot gave; None, one of an earlier start of the agent, or one that means
                nothing: everything that is kept.

        Returns:
            Samples oldest first, their ages counted on the monotonic clock; a step of the wall clock since something
            happened is taken out of its `at`, so that its age in this message is right.
        """
        now, offset = self._moment()
        gpus, nvml = self._gpus(), self._nvml()
        with self._lock:
            seq = self._seq_of(after)
            return wire.Snapshot(
                wire=wire.WIRE_VERSION,
                node=self._node,
                taken_at=now + offset,
                agent=self._agent,
                cursor=f"{self._life}-{self._seq}",
                nvml=nvml,
                gpus=tuple(
                    msgspec.structs.replace(gpu, samples=self._samples_of(gpu.uuid, seq, now)) for gpu in gpus
                ),
                ranks=self._ranks,
                exits=_since(self._exits, seq, now - self._keep_s, offset),
                progress=_since(self._progress, seq, now - self._keep_s, offset),
                events=_since(self._events, seq, now - self._keep_s, offset),
            )

    def sample_age_s(self) -> float | None:
        """Seconds since the last sweep; None before the first."""
        at = self._sampled_at
        return None if at is None else self._clock.monotonic() - at

    def ranks(self) -> tuple[wire.Rank, ...]:
        """The training processes of the last look."""
        return self._ranks

    def _moment(self) -> tuple[float, float]:
        monotonic = self._clock.monotonic()
        return monotonic, self._clock.now() - monotonic

    def _seq_of(self, cursor: str | None) -> int:
        life, _, number = (cursor or "").rpartition("-")
        # Not more digits than a counter of seconds can have, and only ASCII ones: int() would take other scripts' too.
        if life != self._life or not (number.isascii() and number.isdigit() and len(number) <= 15):
            return 0
        seq = int(number)
        return seq if seq <= self._seq else 0

    def _samples_of(self, uuid: str, seq: int, now: float) -> list[Sample]:
        line = self._samples.get(uuid)
        if line is None:
            return []
        return [
            (
                round(now - at, 3),
                reading.power_w,
                reading.utilization_pct,
                reading.mem_utilization_pct,
                reading.sm_clock_mhz,
                reading.memory_used_mib,
            )
            for _, at, _, reading in line.after(seq)
            if now - at <= self._keep_s
        ]


def _since(line: _Line[_Happening], seq: int, oldest: float, offset: float) -> tuple[_Happening, ...]:
    return tuple(
        item if abs(offset - then) < _STEP_S else msgspec.structs.replace(item, at=item.at + offset - then)
        for _, at, then, item in line.after(seq)
        if at >= oldest
    )
