"""Follows the kernel log for XIDs, GPUs off the bus and out-of-memory kills, from now on. Old lines are not news; needs no NVML."""

import errno
import os
import re
import stat
from collections.abc import Mapping

import msgspec

_READ_BYTES = 8192  # a record never exceeds this (PRINTK_MESSAGE_MAX plus prefix)
_MAX_READS = 512
_MAX_TAIL = 8192
_REPEAT_S = 5.0

# Kernel messages quote names that any user can choose (a program's, a cgroup's): only how a message begins is the kernel's own.
_PREFIX = re.compile(r"(?:(\d{1,10}),\d{1,20},\d{1,20},[^;]{0,64};)?(?:\[ {0,8}\d{1,10}\.\d{1,9}\] )?")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{7,16})\): (\d{1,5})(?:,|$)")
_XID_PID = re.compile(r"\s?pid='?(\d{1,10})\b")
_OFF_BUS = re.compile(r"NVRM: (?:The NVIDIA )?GPU ([0-9a-fA-F:.]{7,16})\b.{0,200}?fallen off the bus")
_SXID = re.compile(
    r"nvidia-nvswitch\d{0,4}: SXid \((?:PCI:)?([0-9a-fA-F:.]{7,16})\): (\d{1,6}), (Non-fatal|Fatal)?"
)
_OOM = re.compile(
    r"(?:(?:Memory cgroup out of memory|Out of memory)(?: \(oom_kill_allocating_task\))?: )?Killed process (\d{1,10}) \("
)
_BLOCKED = re.compile(r"INFO: task .{1,64}:(\d{1,10}) blocked for more than (\d{1,6}) seconds")
_BDF = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.\d)?")

# Source: NVIDIA's XID catalogue, in words of ours; codes that are not here are published with their number alone.
_XID_WORDS = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "channel stopped after an application error",
    45: "channels cleaned up, usually after another error",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    63: "memory row remap recorded",
    64: "memory row remap failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC rate",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    119: "GSP did not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    145: "NVLink error",
    149: "NVLink error",
    154: "GPU recovery action changed",
}


class KernelLine(msgspec.Struct, frozen=True):
    """One kernel message that matters."""

    kind: str  # xid | sxid | oom_kill | blocked_task
    text: str
    code: int | None = None
    pid: int | None = None  # in the host's pid namespace
    pci: tuple[int, int, int] | None = None  # domain, bus, device


class KernelLog:
    """Reads /dev/kmsg, or a plain file or pipe of the same lines, without ever waiting."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._tail = b""
        self._recent: dict[tuple[object, int | None], float] = {}
        self.blind: str | None = None
        self._open()

    def read(self, now: float) -> list[KernelLine]:
        """What the kernel said since the last call, oldest first; bounded, the rest comes with the next call.

        Args:
            now: monotonic seconds; the same GPU's same complaint within five seconds is said once.
        """
        if self._descriptor is None:
            return []
        found: list[KernelLine] = []
        for _ in range(_MAX_READS):
            chunk = self._read_once()
            if chunk is None:
                continue
            if not chunk:
                break
            *lines, tail = (self._tail + chunk).split(b"\n")
            self._tail = tail[-_MAX_TAIL:]
            found.extend(line for raw in lines if (line := parse(raw.decode("utf-8", "replace"))) is not None)
        return [line for line in found if self._is_new(line, now)]

    def close(self) -> None:
        """Stop reading."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.blind = (
                f"the kernel log {self._path} cannot be read ({error.strerror}): XIDs and out-of-memory kills are not seen;"
                " give the agent CAP_SYSLOG and the device"
            )
            return
        self._descriptor = descriptor
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.lseek(descriptor, 0, os.SEEK_END)

    def _read_once(self) -> bytes | None:
        """One record; empty when there is none now, None when the kernel overwrote what we had not read yet."""
        assert self._descriptor is not None  # noqa: S101 - for the type checker
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EPIPE:
                self._tail = b""
                return None
            self.blind = f"the kernel log {self._path} broke off ({error.strerror}); restart the agent to read it again"
            self.close()
            return b""

    def _is_new(self, line: KernelLine, now: float) -> bool:
        key = (line.pci or line.pid, line.code)
        last = self._recent.get(key)
        self._recent = {k: t for k, t in self._recent.items() if now - t < _REPEAT_S}
        self._recent[key] = now
        return last is None or now - last >= _REPEAT_S or line.kind == "oom_kill"


def parse(line: str) -> KernelLine | None:
    """One line of the kernel log, with or without kmsg's `prio,seq,usec,flags;` in front, or None when it does not matter.

    Programs may write into the kernel's log too, or have syslog do so; the kernel marks those lines with another facility than
    its own (kernel-doc of /dev/kmsg: facility in the bits above the lowest three), and they are not believed.
    """
    prefix = _PREFIX.match(line)
    start = prefix.end() if prefix else 0
    if prefix and prefix.group(1) and int(prefix.group(1)) >> 3:
        return None
    if found := _XID.match(line, start):
        code = int(found.group(2))
        pid = _XID_PID.match(line, found.end())
        words = _XID_WORDS.get(code)
        said = f"Xid {code}: {words}" if words else f"Xid {code}"
        return KernelLine("xid", said, code, int(pid.group(1)) if pid else None, parse_pci(found.group(1)))
    if found := _OFF_BUS.match(line, start):
        return KernelLine("xid", f"Xid 79: {_XID_WORDS[79]}", 79, None, parse_pci(found.group(1)))
    if found := _SXID.match(line, start):
        severity = (found.group(3) or "").lower()
        return KernelLine("sxid", f"NVSwitch SXid {found.group(2)} {severity}".strip(), int(found.group(2)))
    if found := _OOM.match(line, start):
        said = f"out of memory: killed process {found.group(1)}"
        return KernelLine("oom_kill", said, 9, int(found.group(1)))
    if found := _BLOCKED.match(line, start):
        said = f"process {found.group(1)} blocked in the kernel for more than {found.group(2)} s"
        return KernelLine("blocked_task", said, None, int(found.group(1)))
    return None


def parse_pci(text: str) -> tuple[int, int, int] | None:
    """Domain, bus and device from any spelling: the kernel leaves out the function, NVML writes eight digits of domain."""
    found = _BDF.fullmatch(text)
    if not found:
        return None
    return int(found.group(1) or "0", 16), int(found.group(2), 16), int(found.group(3), 16)


def gpu_of(pci: tuple[int, int, int] | None, pci_by_uuid: Mapping[str, str]) -> str | None:
    """The GPU at this address, where the mapping knows it."""
    if pci is None:
        return None
    return next((uuid for uuid, text in pci_by_uuid.items() if parse_pci(text) == pci), None)
