"""Follows one log file: what was appended since last time, through truncation, turned into marks. Never chooses which files to follow."""

import os
import stat
from pathlib import Path

import msgspec

from watchtower.agent.node.proc import is_regular
from watchtower.trainlog import LogReader, Mark

READ_BACK_BYTES = 256 * 1024  # of a big file that is met for the first time, or after falling behind
MAX_BYTES_PER_LOOK = 256 * 1024
_MAX_BEHIND_BYTES = 4 * 1024 * 1024


class FileKey(msgspec.Struct, frozen=True):
    """Which file it is, whatever its name."""

    device: int
    inode: int


class Appended(msgspec.Struct, frozen=True):
    """What one read brought."""

    marks: tuple[Mark, ...]
    history: bool  # written before we first looked: what happened then is no news
    written_at: float | None  # when the file was last written, the file system's clock


class FollowedFile:
    """One open log. Its calls may block where the file system does: use it in a lane."""

    def __init__(self, descriptor: int, *, late: bool) -> None:
        """Take over an open descriptor; `late` says that the file was there, and may hold old news, before we came."""
        self._descriptor = descriptor
        self._reader = LogReader()
        self._history = late
        seen = os.fstat(descriptor)
        self.key = FileKey(seen.st_dev, seen.st_ino)
        self._offset = max(0, seen.st_size - READ_BACK_BYTES) if late else 0
        self._cut = self._offset > 0

    def read(self) -> Appended:
        """Read what is new, at most a bounded part; the rest comes next time.

        Raises:
            OSError: the file cannot be read any more; close it.
        """
        seen = os.fstat(self._descriptor)
        if seen.st_size < self._offset:  # truncated in place: a new log begins
            self._reader, self._offset, self._history = LogReader(), 0, False
        elif seen.st_size - self._offset > _MAX_BEHIND_BYTES:
            self._offset, self._cut = seen.st_size - READ_BACK_BYTES, True
        data = os.pread(self._descriptor, MAX_BYTES_PER_LOOK, self._offset)
        self._offset += len(data)
        if self._cut:
            data = data[data.find(b"\n") + 1 :]  # begins in the middle of a line
            self._cut = False
        marks = tuple(self._reader.feed(data)) if data else ()
        history = self._history
        self._history = history and self._offset < seen.st_size
        return Appended(marks, history, seen.st_mtime)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def open_log(path: str, uid: int, *, follow_links: bool, root_may_own: bool = False) -> int | None:
    """Open a log to read, if it is a plain file of this user.

    Args:
        path: a /proc/PID/fd link (with `follow_links`, which then opens the very file that the process holds, inside its own
            root and whatever its name leads to by now) or a plain path, whose last component may not be a link.
        root_may_own: also a file of root in a folder that only root can write to (container runtimes' logs).

    Returns:
        A descriptor, or None: not there, not allowed, a device, pipe or socket, somebody else's.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        if not _plain(path, follow_links=follow_links):
            return None  # opening a device or a pipe can already do something
        descriptor = os.open(path, flags)
    except OSError:
        return None
    try:
        owner = os.fstat(descriptor).st_uid
        if is_regular(descriptor) and (
            owner == uid or (owner == 0 and root_may_own and _in_roots_folder(path))
        ):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _plain(path: str, *, follow_links: bool) -> bool:
    mode = Path(path).stat(follow_symlinks=follow_links).st_mode
    return stat.S_ISREG(mode)


def _in_roots_folder(path: str) -> bool:
    seen = Path(path).parent.stat(follow_symlinks=False)
    return seen.st_uid == 0 and not seen.st_mode & 0o022
