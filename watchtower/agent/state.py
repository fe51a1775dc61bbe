"""Joins what the NVML reader and the node side find into the agent's memory, and says how fresh it is. Starts no thread, opens
nothing.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from watchtower import wire
from watchtower.agent.boards import BoardTable, while_unread
from watchtower.agent.history import History, Reading
from watchtower.agent.node.side import GpuProcess, NodeReport
from watchtower.agent.nvml.protocol import Sweep
from watchtower.agent.requests import Health
from watchtower.agent.xids import XidJoiner
from watchtower.clock import Clock
from watchtower.model import NvmlState

logger = logging.getLogger(__name__)

# A sweep is due every second and may take five; a look at /proc may wait for a slow disk.
_SAMPLES_FRESH_S = 15.0
_LOOK_FRESH_S = 30.0


class Reader(Protocol):
    """What the state asks of the NVML reader."""

    starts: int

    @property
    def stuck(self) -> int:
        """Sampling processes that no signal ends."""
        ...

    def status(self) -> wire.Nvml:
        """How NVML is."""
        ...

    def release(self, minutes: float) -> None:
        """Let go of the driver."""
        ...


class Looker(Protocol):
    """What the state asks of the node side."""

    def look(self, gpu_processes: Sequence[GpuProcess]) -> NodeReport:
        """What is new since the last look."""
        ...


class AgentState:
    """The agent's memory: written by the reader's and the node's thread, read by the server's.

    Args:
        node: the node's name.
        agent: who we are.
        clock: the time.
        keep_s: how long samples are kept.
    """

    def __init__(self, node: str, agent: wire.AgentInfo, clock: Clock, *, keep_s: float) -> None:
        self._agent = agent
        self._clock = clock
        self._boards = BoardTable()
        self._reader: Reader | None = None
        self._xids = XidJoiner()
        self._signalled: list[wire.Event] = []
        self._signalled_lock = threading.Lock()
        self._looked_at: float | None = None
        self._blind: tuple[str, ...] = ()
        self._metrics: Callable[[], bytes] | None = None
        self._metrics_lock = threading.Lock()
        self._history = History(node, agent, clock, nvml=self.nvml, gpus=self.gpus, keep_s=keep_s)

    def attach(self, reader: Reader) -> None:
        """Name the reader whose sweeps come in; it needs this state first, so it cannot come with the others."""
        self._reader = reader

    # -- what comes in ----------------------------------------------------------------------------------------------

    def take(self, sweep: Sweep) -> None:
        """One sweep, from the reader's thread."""
        at = self._clock.now()
        events = self._boards.apply(sweep, at)
        self._history.add_readings(
            Reading(
                board.uuid,
                board.power_w,
                board.utilization_pct,
                board.mem_utilization_pct,
                board.sm_clock_mhz,
                board.memory_used_mib,
            )
            for board in sweep.boards
            if board.state == "ok"
        )
        if events:
            self._history.add_happenings(events=events)
        if sweep.xids:
            with self._signalled_lock:
                self._signalled += [
                    wire.Event(at, "xid", gpu_uuid=uuid, code=code, text="reported by NVML")
                    for uuid, code in sweep.xids
                ]

    def look(self, side: Looker) -> None:
        """One look of the node side, in the node's thread."""
        report = side.look(self._boards.processes())
        with self._signalled_lock:
            signalled, self._signalled = self._signalled, []
        events = self._xids.join(report.events, signalled, self._clock.monotonic())
        self._history.set_ranks(report.ranks)
        if report.exits or report.progress or events:
            self._history.add_happenings(exits=report.exits, progress=report.progress, events=events)
        for sentence in report.blind:
            if sentence not in self._blind:
                logger.warning("cannot_see %s", sentence)
        self._blind = report.blind
        self._looked_at = self._clock.monotonic()

    # -- what goes out ----------------------------------------------------------------------------------------------

    def snapshot(self, after: str | None) -> wire.Snapshot:
        """What is new since a cursor."""
        return self._history.snapshot(after)

    def health(self) -> Health:
        """Fresh only while both the GPUs and the processes have been looked at lately."""
        return Health(self._stale_because() is None, self._stale_because(), self._blind)

    def _stale_because(self) -> str | None:
        nvml = self.nvml()
        if nvml.state != NvmlState.OK:
            return f"NVML is {nvml.state}: {nvml.detail}"
        age_s = self.sample_age_s()
        if age_s is None or age_s > _SAMPLES_FRESH_S:
            return "the GPUs have not been read yet" if age_s is None else f"GPUs last read {age_s:.0f} s ago"
        if self._looked_at is None:
            return "the processes have not been looked at yet"
        look_age_s = self._clock.monotonic() - self._looked_at
        return f"processes last looked at {look_age_s:.0f} s ago" if look_age_s > _LOOK_FRESH_S else None

    def metrics(self) -> bytes:
        """The Prometheus exposition; its library is loaded by the first who asks."""
        with self._metrics_lock:
            if self._metrics is None:
                from watchtower.agent.exposition import Exposition

                self._metrics = Exposition(self).text
        return self._metrics()

    def release(self, minutes: float) -> None:
        """Let go of the GPUs for so long."""
        if self._reader is not None:
            self._reader.release(minutes)

    # -- figures ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """Of the agent."""
        return self._agent.version

    def nvml(self) -> wire.Nvml:
        """How NVML is."""
        if self._reader is None:
            return wire.Nvml(NvmlState.UNRESPONSIVE.value, detail="starting: NVML has not been asked yet")
        return self._reader.status()

    def gpus(self) -> tuple[wire.Gpu, ...]:
        """Every board, without samples."""
        return while_unread(self._boards.gpus(), self.nvml())

    def pci_by_uuid(self) -> dict[str, str]:
        """Where each board sits."""
        return self._boards.pci_by_uuid()

    def ranks(self) -> int:
        """Training processes seen."""
        return len(self._history.ranks())

    def sample_age_s(self) -> float | None:
        """Seconds since the last sweep."""
        return self._history.sample_age_s()

    def sampler_starts(self) -> int:
        """Sampling processes started."""
        return 0 if self._reader is None else self._reader.starts

    def samplers_stuck(self) -> int:
        """Sampling processes that no signal ends."""
        return 0 if self._reader is None else self._reader.stuck
