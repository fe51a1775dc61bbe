"""Reads /proc, bounded and without following anything: stat, status, environ, cgroup, io, children, open files. Decides nothing."""

import os
import re
import stat
from enum import StrEnum
from itertools import islice
from pathlib import Path

import msgspec

from watchtower.agent.node.identity import ALLOWED_VARIABLES

_MAX_ENVIRON_BYTES = 256 * 1024
_MAX_FILE_BYTES = 64 * 1024
_MAX_OPEN_FILES = 512
_MAX_THREADS = 1024
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR


class Absent(StrEnum):
    """Why something about a process cannot be read."""

    GONE = "gone"
    DENIED = "denied"


class ProcessKey(msgspec.Struct, frozen=True):
    """What names a process for as long as this boot lasts: a pid alone is used again."""

    pid: int
    start_ticks: int


class Stat(msgspec.Struct, frozen=True):
    """The fields of /proc/PID/stat that are used here."""

    key: ProcessKey
    state: str
    parent_pid: int
    cpu_ticks: int  # user and system, with the children it has waited for
    wait_status: int  # field 52, as wait(2) would give it; 0 also when it may not be read


class Owner(msgspec.Struct, frozen=True):
    """Whose process it is, and its number inside its own pid namespace."""

    uid: int
    inner_pid: int


class OpenFile(msgspec.Struct, frozen=True):
    """A file that a process holds open for writing."""

    link: str  # /proc/PID/fd/N: opening it opens that very file, whatever happened to the name
    name: str  # the path as the process sees it
    mount_id: int  # known without touching the file system, which may be dead
    standard: bool  # its standard output or error


class Proc:
    """One /proc; `root` may be a made-up tree."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)

    def stat(self, pid: int) -> Stat | None:
        """State and counters of a process, None when it is gone."""
        raw = self._read(pid, "stat", _MAX_FILE_BYTES)
        if isinstance(raw, Absent):
            return None
        # The name in brackets may hold anything, brackets and spaces included: count from the last one.
        fields = raw[raw.rfind(b")") + 2 :].split()
        try:
            return Stat(
                key=ProcessKey(pid, int(fields[19])),
                state=fields[0].decode("ascii", "replace"),
                parent_pid=int(fields[1]),
                cpu_ticks=sum(int(field) for field in fields[11:15]),
                wait_status=int(fields[49]) if len(fields) > 49 else 0,
            )
        except (ValueError, IndexError):
            return None

    def owner(self, pid: int) -> Owner | None:
        """Real user and inner pid from /proc/PID/status, None when it is gone."""
        raw = self._read(pid, "status", _MAX_FILE_BYTES)
        if isinstance(raw, Absent):
            return None
        uid = re.search(rb"^Uid:\s+(\d+)", raw, re.MULTILINE)
        inner = re.search(rb"^NSpid:.*?(\d+)\s*$", raw, re.MULTILINE)
        return Owner(int(uid.group(1)), int(inner.group(1)) if inner else pid) if uid else None

    def environ(self, pid: int) -> dict[str, str] | Absent:
        """The allowed variables of the environment a process was started with; never any other."""
        raw = self._read(pid, "environ", _MAX_ENVIRON_BYTES)
        if isinstance(raw, Absent):
            return raw
        found: dict[str, str] = {}
        for entry in raw.split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name in ALLOWED_VARIABLES and len(value) <= 4096:
                found.setdefault(name.decode(), value.decode("utf-8", "replace"))
        return found

    def cgroup(self, pid: int) -> str:
        """The text of /proc/PID/cgroup, empty when it cannot be read."""
        raw = self._read(pid, "cgroup", _MAX_FILE_BYTES)
        return "" if isinstance(raw, Absent) else raw.decode("utf-8", "replace")

    def storage_bytes(self, pid: int) -> tuple[int, int] | Absent:
        """Bytes read from and written to storage, children that it has waited for included."""
        raw = self._read(pid, "io", _MAX_FILE_BYTES)
        if isinstance(raw, Absent):
            return raw
        values = dict(line.split(b": ", 1) for line in raw.splitlines() if b": " in line)
        try:
            return int(values[b"read_bytes"]), int(values[b"write_bytes"])
        except (KeyError, ValueError):
            return Absent.DENIED

    def children(self, pid: int, *, all_threads: bool) -> list[int]:
        """Its living children; those of the main thread only unless asked for all (a training process has hundreds)."""
        threads = [str(pid)]
        if all_threads:
            try:
                threads = _names(f"{self.root}/{pid}/task", _MAX_THREADS)
            except OSError:
                return []
        found: list[int] = []
        for thread in threads:
            raw = self._read(pid, f"task/{thread}/children", _MAX_FILE_BYTES)
            if not isinstance(raw, Absent):
                found.extend(int(field) for field in raw.split() if field.isdigit())
        return found

    def written_files(self, pid: int, *, standard_only: bool) -> list[OpenFile] | Absent:
        """Named files that it holds open for writing. Only reads links and fdinfo, so a dead file system cannot hold us."""
        folder = f"{self.root}/{pid}/fd"
        try:
            numbers = ["1", "2"] if standard_only else _names(folder, _MAX_OPEN_FILES)
        except PermissionError:
            return Absent.DENIED
        except OSError:
            return Absent.GONE
        found = []
        for number in numbers:
            standard = number in ("1", "2")
            opened = self._open_file(pid, number, standard=standard)
            if opened is not None:
                found.append(opened)
        return found

    def boot_time(self) -> float | None:
        """When this machine started, Unix seconds, as the kernel gives it."""
        try:
            with Path(self.root, "stat").open("rb") as file:
                found = re.search(rb"^btime (\d+)", file.read(4 * 1024 * 1024), re.MULTILINE)
        except OSError:
            return None
        return float(found.group(1)) if found else None

    def _open_file(self, pid: int, number: str, *, standard: bool) -> OpenFile | None:
        link = f"{self.root}/{pid}/fd/{number}"
        try:
            name = os.readlink(link)  # noqa: PTH115 - thousands of times a minute
        except OSError:
            return None
        if not name.startswith("/") or name.startswith(("/dev/", "/proc/", "/sys/")):
            return None  # a pipe, a socket, a terminal
        raw = self._read(pid, f"fdinfo/{number}", _MAX_FILE_BYTES)
        if isinstance(raw, Absent):
            return None
        flags = re.search(rb"^flags:\s+([0-7]+)", raw, re.MULTILINE)
        mount = re.search(rb"^mnt_id:\s+(\d+)", raw, re.MULTILINE)
        if not flags or not int(flags.group(1), 8) & _WRITE_FLAGS:
            return None
        return OpenFile(link, name, int(mount.group(1)) if mount else -1, standard)

    def _read(self, pid: int, name: str, limit: int) -> bytes | Absent:
        try:
            descriptor = os.open(f"{self.root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except PermissionError:
            return Absent.DENIED
        except OSError:
            return Absent.GONE
        try:
            return _read_up_to(descriptor, limit)
        except PermissionError:
            return Absent.DENIED
        except OSError:  # a zombie's environ answers ESRCH
            return Absent.GONE
        finally:
            os.close(descriptor)


def _names(folder: str, most: int) -> list[str]:
    """The first names only: a process may have a million threads or open files."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, most)]


def _read_up_to(descriptor: int, limit: int) -> bytes:
    parts = []
    left = limit
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def open_regular(
    path: str, uids: frozenset[int], *, follow_link: bool = False, parent: int | None = None
) -> int | None:
    """Open a plain file of one of these users to read, and nothing else, not even for a moment.

    The file is first only pointed at (O_PATH), which does nothing to a device or a pipe and waits for nobody; what is then
    looked at is what is opened, whoever swaps the name meanwhile.

    Args:
        path: a name; its last component may not be a link unless `follow_link`, for links of /proc/PID/fd.
        parent: descriptor of the folder that `path` is in.

    Returns:
        A descriptor, or None: a device, pipe, socket or folder, or somebody else's.

    Raises:
        OSError: not there, or not allowed.
    """
    nofollow = 0 if follow_link else os.O_NOFOLLOW
    pointed = os.open(path, os.O_PATH | os.O_CLOEXEC | nofollow, dir_fd=parent)
    try:
        seen = os.fstat(pointed)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid not in uids:
            return None
        # Our own /proc, whatever tree is looked at: there the name of a descriptor opens that very file.
        return os.open(f"/proc/self/fd/{pointed}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(pointed)
