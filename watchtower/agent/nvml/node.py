"""Reads all boards of this machine: initialises NVML once, keeps their handles, notices comers and goers. One thread, no clock."""

import ctypes
from pathlib import Path
from typing import Any

import pynvml

from watchtower.agent.nvml.board import SLOW_EVERY_SWEEPS, BoardReader
from watchtower.agent.nvml.calls import Caller, DriverGoneError, Missing
from watchtower.agent.nvml.protocol import Board, Failure, Sweep

_PID_MAX = 4_194_304  # Source: proc(5), the largest value on 64-bit machines; used where it cannot be read
_MAX_EVENTS_PER_SWEEP = 64

# What a person can do about it, next to what went wrong.
_ADVICE = {
    "library_not_found": "is the NVIDIA driver installed, and its library visible in this container?",
    "driver_not_loaded": "the NVIDIA kernel module is not loaded",
    "version_mismatch": "the driver was upgraded under its loaded kernel module: reload the module or reboot",
    "no_permission": "this user may not open /dev/nvidia*",
    "unknown_error": "often a container that has lost its right to /dev/nvidia*",
}


class NodeReader:
    """Every board of this machine, over the life of the sampling process.

    Args:
        breadcrumb_fd: an open file for breadcrumbs, or None.
        proc_root: where the processes of this machine are listed.
    """

    def __init__(self, breadcrumb_fd: int | None, *, proc_root: Path) -> None:
        self._caller = Caller(breadcrumb_fd)
        self._proc_root = proc_root
        self._pid_max = _read_pid_max(proc_root)
        self._boards: dict[str, BoardReader] = {}
        self._driver_version: str | None = None
        self._events: Any = None
        self._started = False

    def sweep(self, number: int) -> Sweep:
        """Read every board once, in order of index; the first sweep initialises NVML.

        Returns:
            The boards, those that have vanished among them as lost; or a Sweep with `failed`, after which this process is of
            no more use: a library that was loaded once is never loaded anew.
        """
        self._caller.sweep = number
        try:
            if not self._started:
                self._start()
            elif number % SLOW_EVERY_SWEEPS == 1:
                self._enumerate()
            boards = [reader.read() for reader in sorted(self._boards.values(), key=lambda b: b.index)]
            xids = self._new_xids()
        except DriverGoneError as gone:
            return Sweep(sweep=number, failed=self._explained(gone.reason, gone.detail))
        if boards and all(_revoked(board) for board in boards):
            failed = self._explained("unknown_error", "every call about every GPU says unknown error")
            return Sweep(sweep=number, failed=failed)
        return Sweep(
            sweep=number, driver_version=self._driver_version, boards=tuple(boards), xids=tuple(xids)
        )

    def _start(self) -> None:
        answer = self._caller.call(None, "nvmlInit")
        if isinstance(answer, Missing):
            why = _library_error() if answer.reason == "library_not_found" else None
            raise DriverGoneError(answer.reason, why or f"nvmlInit says {answer.reason}")
        version = self._caller.call(None, "nvmlSystemGetDriverVersion")
        self._driver_version = None if isinstance(version, Missing) else str(version)
        self._enumerate()
        self._started = True

    def _enumerate(self) -> None:
        """Take up boards that are new, and give up those that are not listed any more."""
        count = self._caller.call(None, "nvmlDeviceGetCount")
        if isinstance(count, Missing):
            if not self._started:
                raise DriverGoneError(count.reason, f"nvmlDeviceGetCount says {count.reason}")
            return
        nameless = [uuid for uuid, reader in self._boards.items() if reader.nameless]
        if self._started and not nameless and count == sum(not b.vanished for b in self._boards.values()):
            return
        for uuid in nameless:
            del self._boards[uuid]
        listed = [self._found(index) for index in range(count)]
        uuids = {reader.uuid for reader in listed}
        for reader in listed:
            known = self._boards.get(reader.uuid)
            if known is None or known.vanished:
                self._boards[reader.uuid] = reader
        for reader in self._boards.values():
            reader.vanished = reader.uuid not in uuids
        self._watch_events()

    def _found(self, index: int) -> BoardReader:
        handle = self._caller.call(index, "nvmlDeviceGetHandleByIndex", index)
        return BoardReader(self._caller, index, handle, proc_root=self._proc_root, pid_max=self._pid_max)

    # -- events: the only source of Xids for an agent that may not read the kernel's log --------------------------------

    def _watch_events(self) -> None:
        if self._events is not None:
            self._caller.call(None, "nvmlEventSetFree", self._events)
        created = self._caller.call(None, "nvmlEventSetCreate")
        self._events = None if isinstance(created, Missing) else created
        for reader in self._boards.values():
            if self._events is None or reader.vanished or isinstance(reader.handle, Missing):
                continue
            # Asking for one type that a board does not support registers none: so only Xids, and each board by itself.
            self._caller.call(
                reader.index,
                "nvmlDeviceRegisterEvents",
                reader.handle,
                pynvml.nvmlEventTypeXidCriticalError,
                self._events,
            )

    def _new_xids(self) -> list[tuple[str, int]]:
        xids: list[tuple[str, int]] = []
        while self._events is not None and len(xids) < _MAX_EVENTS_PER_SWEEP:
            event = self._caller.call(None, "nvmlEventSetWait", self._events, 0)
            if isinstance(event, Missing):
                if event.reason != "timeout":  # the set is of no more use, for example since a GPU was lost
                    self._watch_events_later()
                break
            uuid = self._caller.call(None, "nvmlDeviceGetUUID", event.device)
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError and not isinstance(uuid, Missing):
                xids.append((str(uuid), int(event.eventData)))
        return xids

    def _watch_events_later(self) -> None:
        if self._caller.sweep % SLOW_EVERY_SWEEPS == 1:
            self._watch_events()

    def _explained(self, reason: str, detail: str) -> Failure:
        advice = _ADVICE.get(reason)
        if reason == "version_mismatch":
            detail = f"{detail}; loaded module: {_module_version(self._proc_root)}"
        return Failure(reason, f"{detail} ({advice})" if advice else detail)


def _revoked(board: Board) -> bool:
    return board.state == "unreadable" and board.missing.get("power") == "unknown_error"


def _library_error() -> str | None:
    """Why the loader refused the library; the binding keeps that to itself."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return str(error)
    return None


def _module_version(proc_root: Path) -> str:
    try:
        first = (proc_root / "driver/nvidia/version").read_text(errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return "not known"
    return first.removeprefix("NVRM version:").strip()


def _read_pid_max(proc_root: Path) -> int:
    try:
        return int((proc_root / "sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return _PID_MAX
