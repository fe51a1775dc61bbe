"""Follows one log file: what was appended since last time, through truncation, turned into marks. Never chooses which files to follow."""

import os
from pathlib import PurePath

import msgspec

from watchtower.agent.node.proc import open_regular
from watchtower.trainlog import LogReader, Mark

READ_BACK_BYTES = 256 * 1024  # of a big file that is met for the first time, or after falling behind
MAX_BYTES_PER_LOOK = 256 * 1024
_MAX_BEHIND_BYTES = 4 * 1024 * 1024
_STEP = (
    os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
)  # O_PATH: a folder may be passed through that may not be listed
_FIRST_USERS_GID = 1000  # Source: login.defs, SYS_GID_MAX; /var/log belongs to the group syslog in places


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

    def read(self, most: int = MAX_BYTES_PER_LOOK) -> Appended:
        """Read what is new, at most so many bytes; the rest comes next time.

        Raises:
            OSError: the file cannot be read any more; close it.
        """
        seen = os.fstat(self._descriptor)
        if seen.st_size < self._offset:  # truncated in place: a new log begins
            self._reader, self._offset, self._history = LogReader(), 0, False
        elif seen.st_size - self._offset > _MAX_BEHIND_BYTES:
            self._offset, self._cut = seen.st_size - READ_BACK_BYTES, True
        data = os.pread(self._descriptor, most, self._offset)
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


def open_held_log(link: str, uid: int) -> int | None:
    """Open what a process holds open: the very file, whatever its name leads to by now.

    Args:
        link: a /proc/PID/fd link.
        uid: whose plain file it must be.

    Returns:
        A descriptor, or None: not there, not allowed, a device, pipe or socket, somebody else's.
    """
    try:
        return open_regular(link, frozenset({uid}), follow_link=True)
    except OSError:
        return None


def open_named_log(path: str, uid: int) -> int | None:
    """Open a log that the settings name.

    Args:
        path: absolute. Only links that root alone could have placed are followed on the way, and the last name is none.
        uid: whose plain file it must be; or root's (container runtimes' logs), if root alone could have placed every name on
            the way and none of them is a link: a user's own link could lead to the logs of others.

    Returns:
        A descriptor, or None: not there, not allowed, not to be believed.
    """
    try:
        folder, roots_alone = _walk(str(PurePath(path).parent))
    except OSError:
        return None
    try:
        return open_regular(PurePath(path).name, frozenset({uid, 0} if roots_alone else {uid}), parent=folder)
    except OSError:
        return None
    finally:
        os.close(folder)


def _walk(path: str) -> tuple[int, bool]:
    """A descriptor of a folder, and whether root alone could have placed all that leads to it, without any link."""
    descriptor = os.open("/", _STEP)
    roots_alone = True
    try:
        for part in PurePath(path).parts[1:]:
            roots_alone = roots_alone and _only_root_writes(descriptor)
            try:
                below = os.open(part, _STEP | os.O_NOFOLLOW, dir_fd=descriptor)
            except NotADirectoryError:  # what O_DIRECTORY says of a link
                if not _only_root_writes(descriptor):
                    raise
                roots_alone = False
                below = os.open(part, _STEP, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        return descriptor, roots_alone and _only_root_writes(descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _only_root_writes(folder: int) -> bool:
    seen = os.fstat(folder)
    writable = seen.st_mode & (0o022 if seen.st_gid >= _FIRST_USERS_GID else 0o002)
    return seen.st_uid == 0 and not writable
