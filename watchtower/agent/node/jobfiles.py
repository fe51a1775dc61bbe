"""Reads the small files that jobs write for the agent. Everything in them is hostile: it opens nothing but plain small files of their owner."""

import os
import re
import stat

import msgspec

from watchtower.agent.node.identity import safe_id
from watchtower.agent.node.proc import open_regular

_MAX_BYTES = 16 * 1024
_MAX_RUNS = 64
_MAX_FILES = 1024  # of one folder in one look, all its runs together: a shared folder may hold the ranks of other nodes too
_NAME = re.compile(r"rank_(\d{1,6})\.json")
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # may pass through what may not be listed
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's file (docs/formats.md section 7)."""

    run_id: str
    rank: int
    pid: int
    run_name: str | None = None
    world_size: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    step: int | None = None
    total_steps: int | None = None
    at: float | None = None
    phase: str | None = None
    throughput: float | None = None
    throughput_unit: str | None = None
    throughput_scope: str | None = None


class JobFolder(msgspec.Struct, frozen=True):
    """Where to look for one user's files."""

    root: str  # the root that `path` is meant in: "/" or a process's own
    path: str
    uid: int  # whose files are believed


class JobFiles(msgspec.Struct, frozen=True):
    """What one folder held."""

    folder: JobFolder
    heartbeats: tuple[Heartbeat, ...]
    refused: int  # files that were not what they must be: owner, kind, size, name, content


_decoder = msgspec.json.Decoder(Heartbeat)


def read_job_folder(folder: JobFolder) -> JobFiles:
    """Read all heartbeats in `<folder>/<run_id>/rank_<r>.json`; may block where the file system does, so call it in a lane."""
    descriptor = _open_below(folder)
    if descriptor is None:
        return JobFiles(folder, (), 0)
    try:
        found: list[Heartbeat] = []
        refused = looked_at = 0
        if os.fstat(descriptor).st_uid != folder.uid:
            return JobFiles(folder, (), 1)
        for run_id in _names(descriptor)[:_MAX_RUNS]:
            if safe_id(run_id) and looked_at < _MAX_FILES:
                more, wrong = _read_run(descriptor, run_id, folder.uid, found, most=_MAX_FILES - looked_at)
                looked_at, refused = looked_at + more, refused + wrong
        return JobFiles(folder, tuple(found), refused)
    except OSError:
        return JobFiles(folder, (), 1)
    finally:
        os.close(descriptor)


def _open_below(folder: JobFolder) -> int | None:
    """Open a folder component by component from its root, so that no link on the way leads anywhere else."""
    try:
        descriptor = os.open(folder.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    for part in folder.path.split("/"):
        if part in ("", "."):
            continue
        try:
            if part == "..":
                return None
            below = os.open(part, _STEP, dir_fd=descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        descriptor = below
    try:
        return os.open(".", _FOLDER, dir_fd=descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read_run(parent: int, run_id: str, uid: int, found: list[Heartbeat], *, most: int) -> tuple[int, int]:
    """Files looked at, and how many of them (or the folder itself) were refused."""
    try:
        descriptor = os.open(run_id, _FOLDER, dir_fd=parent)
    except OSError:
        return 1, int(_is_link(parent, run_id))
    looked_at = refused = 0
    try:
        if os.fstat(descriptor).st_uid != uid:
            return 1, 1
        for name in _names(descriptor):
            match = _NAME.fullmatch(name)
            if match is None:
                continue  # a file being written, or somebody's own
            if looked_at >= most:
                break
            looked_at += 1
            heartbeat = _read_file(descriptor, name, uid)
            if heartbeat is None or heartbeat.run_id != run_id or heartbeat.rank != int(match.group(1)):
                refused += 1
            else:
                found.append(heartbeat)
    finally:
        os.close(descriptor)
    return looked_at, refused


def _read_file(parent: int, name: str, uid: int) -> Heartbeat | None:
    try:
        descriptor = open_regular(name, frozenset({uid}), parent=parent)
    except OSError:
        return None
    if descriptor is None:
        return None
    try:
        raw = os.read(descriptor, _MAX_BYTES + 1)
        return _decoder.decode(raw) if len(raw) <= _MAX_BYTES else None
    except (OSError, msgspec.DecodeError, RecursionError):  # lists in lists in lists
        return None
    finally:
        os.close(descriptor)


def _names(descriptor: int) -> list[str]:
    with os.scandir(descriptor) as entries:
        return sorted(entry.name for entry, _ in zip(entries, range(_MAX_FILES), strict=False))


def _is_link(parent: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False
