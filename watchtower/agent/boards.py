"""What is known of each board now, by UUID, over the life of the agent: its last description, its processes, what has changed.
Keeps no samples and judges nothing.
"""

import logging
from collections.abc import Sequence

import msgspec

from watchtower import wire
from watchtower.agent.node.side import GpuProcess
from watchtower.agent.nvml.protocol import NAMELESS, Board, Sweep
from watchtower.model import GpuState, NvmlState

logger = logging.getLogger(__name__)

# Source: nvmlDeviceGpuRecoveryAction in nvml.h.
_RECOVERY = {
    1: "GPU reset",
    2: "node reboot",
    3: "drain peer-to-peer",
    4: "drain and reset",
    5: "recover IMEX",
    6: "bus reset",
    7: "system reboot",
}


class _Known(msgspec.Struct):
    gpu: wire.Gpu
    processes: tuple[tuple[int, float | None], ...] = ()
    ecc_uncorrected: int | None = None
    recovery_action: int = 0


class BoardTable:
    """Every board that this agent has ever seen; used from the reader's thread, read through snapshots of its values."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._processes: tuple[GpuProcess, ...] = ()
        self._power_from: dict[str, str | None] = {}

    def apply(self, sweep: Sweep, at: float) -> list[wire.Event]:
        """Take up one sweep.

        Args:
            sweep: one with boards.
            at: now, the node's wall clock, for the events.

        Returns:
            What happened to the boards since the sweep before: ecc_uncorrected (code: how many more), recovery_action
            (code: the driver's number, 0 when it asks for nothing any more). A board that was known and is not in the sweep
            becomes lost.
        """
        boards = [self._named(board) for board in sweep.boards]
        events: list[wire.Event] = []
        for board in boards:
            known = self._known.get(board.uuid)
            gpu = _described(board, None if known is None else known.gpu)
            if known is None:
                known = self._known[board.uuid] = _Known(gpu)
                logger.info("gpu_found uuid=%s index=%d model=%s", board.uuid, board.index, board.model)
            self._log_edges(known.gpu, gpu, board)
            known.gpu = gpu
            if board.processes is not None:
                known.processes = board.processes
            events += _happened(known, board, at)
        present = {board.uuid for board in boards}
        for uuid, known in self._known.items():
            if uuid not in present and known.gpu.state != GpuState.LOST:
                logger.warning("gpu_vanished uuid=%s", uuid)
                known.gpu = msgspec.structs.replace(
                    known.gpu, state=GpuState.LOST.value, detail="no longer listed by the driver"
                )
                known.processes = ()
        self._processes = tuple(
            GpuProcess(pid, uuid, used_mib)
            for uuid, known in sorted(self._known.items(), key=lambda item: item[1].gpu.index)
            for pid, used_mib in known.processes
        )
        return events

    def gpus(self) -> tuple[wire.Gpu, ...]:
        """Every board as last described, in order of index, without samples."""
        return tuple(sorted((known.gpu for known in tuple(self._known.values())), key=lambda gpu: gpu.index))

    def processes(self) -> tuple[GpuProcess, ...]:
        """The last list of each board, in order of index. While NVML does not answer it is old: every pid has to be looked at in /proc anyway."""
        return self._processes

    def pci_by_uuid(self) -> dict[str, str]:
        """Where each board sits, for those that say so."""
        return {gpu.uuid: gpu.pci_bus_id for gpu in self.gpus() if gpu.pci_bus_id is not None}

    def _named(self, board: Board) -> Board:
        """A board that cannot even say its UUID is the one that we know at its index."""
        if not board.uuid.startswith(NAMELESS):
            return board
        for uuid, known in self._known.items():
            if known.gpu.index == board.index:
                return msgspec.structs.replace(board, uuid=uuid)
        return board

    def _log_edges(self, before: wire.Gpu, now: wire.Gpu, board: Board) -> None:
        if before.state != now.state:
            logger.warning(
                "gpu_state uuid=%s state=%s previous=%s detail=%s",
                now.uuid,
                now.state,
                before.state,
                now.detail,
            )
        if self._power_from.setdefault(now.uuid, board.power_from) != board.power_from:
            logger.info("gpu_power_source uuid=%s source=%s", now.uuid, board.power_from)
            self._power_from[now.uuid] = board.power_from


def while_unread(gpus: tuple[wire.Gpu, ...], nvml: wire.Nvml) -> tuple[wire.Gpu, ...]:
    """The boards as they may be told while NVML is not `ok`: nobody can read them, whatever was true before."""
    if nvml.state == NvmlState.OK:
        return gpus
    return tuple(
        gpu
        if gpu.state == GpuState.LOST
        else msgspec.structs.replace(gpu, state=GpuState.UNREADABLE.value, detail=nvml.detail)
        for gpu in gpus
    )


def _described(board: Board, before: wire.Gpu | None) -> wire.Gpu:
    """What does not change is kept while a board cannot say it any more; what does is None when it is not known."""
    return wire.Gpu(
        uuid=board.uuid,
        index=board.index,
        pci_bus_id=board.pci_bus_id or (before.pci_bus_id if before else None),
        model=board.model or (before.model if before else ""),
        state=board.state,
        power_limit_w=board.power_limit_w,
        memory_total_mib=board.memory_total_mib or (before.memory_total_mib if before else None),
        temperature_c=board.temperature_c,
        clock_event_reasons=board.clock_event_reasons,
        detail=board.detail,
    )


def _happened(known: _Known, board: Board, at: float) -> Sequence[wire.Event]:
    events = []
    if board.ecc_uncorrected is not None:
        more = board.ecc_uncorrected - (known.ecc_uncorrected or 0)
        # The first count is old news; a smaller one is a driver that was loaded anew.
        if known.ecc_uncorrected is not None and more > 0:
            text = (
                f"{more} more uncorrected memory errors, {board.ecc_uncorrected} since the driver was loaded"
            )
            events.append(
                wire.Event(at, "ecc_uncorrected", gpu_uuid=board.uuid, code=min(more, 2**31), text=text)
            )
        known.ecc_uncorrected = board.ecc_uncorrected
    action = board.recovery_action
    if action is not None and action != known.recovery_action:
        wanted = _RECOVERY.get(action, f"action {action}") if action else "nothing any more"
        text = f"the driver asks for: {wanted}"
        events.append(wire.Event(at, "recovery_action", gpu_uuid=board.uuid, code=action, text=text))
        known.recovery_action = action
    return events
