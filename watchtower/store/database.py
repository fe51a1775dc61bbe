"""One SQLite file in a directory that one process owns: opening, locking, migrating, transactions. Knows no table but its version."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

FILE_NAME = "watchtower.db"
LOCK_NAME = "watchtower.lock"
_BUSY_MS = 5000


class StoreError(Exception):
    """The store cannot be used; one sentence that names the file and what to do. Show it and end non-zero."""


class Database:
    """A connection that is used by one thread at a time; there are no locks here.

    synchronous=FULL: with NORMAL the last commits can vanish when the power fails, and a page is exactly such a commit.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock_fd: int) -> None:
        self.path = path
        self._connection = connection
        self._lock_fd = lock_fd
        self._identity: tuple[int, int] | None = None

    @classmethod
    def open(cls, directory: Path, factory: type[sqlite3.Connection] = sqlite3.Connection) -> "Database":
        """Own the directory, open the file, bring its tables up to date.

        Raises:
            StoreError: owned by another process, not writable, not our file, written by a newer version.
        """
        lock_fd = _own(directory)
        path = directory / FILE_NAME
        try:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=factory)
        except sqlite3.Error as error:
            os.close(lock_fd)
            raise StoreError(f"cannot open {path}: {error}") from None
        database = cls(path, connection, lock_fd)
        try:
            database._prepare()
            database._identity = _identity(path)
        except (
            sqlite3.OperationalError
        ) as error:  # locked, full, not ours to write: the file itself may be sound
            database.close()
            raise StoreError(f"cannot use {path}: {error}") from None
        except sqlite3.Error as error:
            database.close()
            raise StoreError(
                f"cannot use {path}: {error}; move the file away to start afresh, or restore a backup"
            ) from None
        except StoreError:
            database.close()
            raise
        return database

    def close(self) -> None:
        """Close the file and give up the directory."""
        self._connection.close()
        os.close(self._lock_fd)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is executed inside is written together, or not at all.

        A commit into a file that somebody has removed succeeds and keeps nothing, so that is looked at first. IMMEDIATE,
        because a reader that turns writer halfway can fail at once, which the busy timeout does not cover.

        Raises:
            StoreError: nothing was written (disk full, I/O error, locked, file removed); end the process, or keep the work
                in memory.
        """
        if _identity(self.path) != self._identity:
            raise StoreError(
                f"{self.path} was removed or replaced while in use; leave it alone while watchtower runs"
            )
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(f"cannot write {self.path}: {error}") from error

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        """Read.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"cannot read {self.path}: {error}") from error

    def _prepare(self) -> None:
        self._connection.row_factory = sqlite3.Row
        # auto_vacuum is chosen before the first table, or never.
        for pragma in (
            f"busy_timeout = {_BUSY_MS}",
            "auto_vacuum = INCREMENTAL",
            "journal_mode = WAL",
            "synchronous = FULL",
        ):
            self._connection.execute(f"PRAGMA {pragma}")
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        scripts = _migrations()
        if version > len(scripts):
            raise StoreError(
                f"{self.path} was written by a newer watchtower (version {version}, this one knows {len(scripts)}); "
                "install that version again, or move the file away to start afresh"
            )
        for number, script in enumerate(scripts[version:], start=version + 1):
            try:
                self._connection.executescript(
                    f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;"
                )
            except sqlite3.Error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _own(directory: Path) -> int:
    lock = directory / LOCK_NAME
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"cannot use data directory {directory}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        by = f" (pid {owner})" if owner else ""
        raise StoreError(
            f"data directory {directory} is in use by another watchtower{by}; stop it or choose another data directory"
        ) from None
    with suppress(OSError):  # on a full disk the lock holds all the same; it only does not say whose it is
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _migrations() -> list[str]:
    folder = resources.files("watchtower.store") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]
