"""Joins the job files to living processes: who is registered as which rank, and how far each says it is. Opens no file itself but by lanes."""

import os
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from watchtower import wire
from watchtower.agent.node.jobfiles import Heartbeat, JobFiles, JobFolder, read_job_folder
from watchtower.agent.node.lanes import Lanes
from watchtower.agent.node.members import Member
from watchtower.agent.node.proc import ProcessKey
from watchtower.agent.node.resolve import Registration

_WAIT_S = 0.1
_MAX_FOLDERS_PER_USER = 16
_PREPARE_EVERY_S = 60.0
_PHASES = frozenset({"init", "train", "eval", "checkpoint", "finishing", "finished"})
_UNITS = frozenset({"tokens/s", "samples/s", "steps/s"})
_SCOPES = frozenset({"run", "gpu"})
_LARGEST = 10**12

_Said = tuple[int | None, str | None, float | None, int | None]


class Registry:
    """What jobs have written about themselves; one look a second."""

    def __init__(self, job_directory: str, proc_root: str) -> None:
        self._base = job_directory
        self._proc_root = proc_root
        self._lanes: Lanes[list[JobFiles]] = Lanes()
        self._files: dict[JobFolder, JobFiles] = {}
        self._prepared: dict[int, float] = {}
        self._unprepared: str | None = None
        self._matched: dict[ProcessKey, Heartbeat] = {}
        self._said: dict[ProcessKey, _Said] = {}
        self._unmatched = 0

    def look(self, members: Sequence[Member], now_s: float) -> dict[ProcessKey, Registration]:
        """Read the files again.

        Args:
            members: all processes that a file may speak for: those on the node's GPUs.

        Returns:
            Registrations of processes whose owner wrote them; a file of anybody else, or of a process that is gone, has none.
        """
        folders: dict[JobFolder, list[Member]] = {}
        lanes: dict[tuple[int, str], set[JobFolder]] = {}
        for member in members:
            uid = member.owner.uid
            self._prepare(uid, now_s)
            ours = JobFolder("/", f"{self._base}/{uid}", uid)
            folders.setdefault(ours, []).append(member)
            lanes.setdefault((uid, "ours"), set()).add(ours)
        for own, group in self._named_folders(members).items():
            folders.setdefault(own, []).extend(group)
            theirs = lanes.setdefault((own.uid, "theirs"), set())
            if len(theirs) < _MAX_FOLDERS_PER_USER:
                theirs.add(own)
        for (uid, whose), wanted in lanes.items():
            self._lanes.submit(f"{uid} {whose}", partial(_read_folders, sorted(wanted, key=str)), owner=uid)
        for found in self._lanes.collect(_WAIT_S):
            self._files.update((files.folder, files) for files in found)
        self._files = {folder: files for folder, files in self._files.items() if folder in folders}
        self._match(folders)
        return {key: _registration(heartbeat) for key, heartbeat in self._matched.items()}

    def progress(self, key: ProcessKey, run_id: str, rank: int | None, now: float) -> wire.Progress | None:
        """What this process's heartbeat newly says, None when it says what it said before: writing is not progress."""
        heartbeat = self._matched.get(key)
        if heartbeat is None:
            return None
        step = _whole(heartbeat.step)
        phase = heartbeat.phase if heartbeat.phase in _PHASES else None
        unit = heartbeat.throughput_unit if heartbeat.throughput_unit in _UNITS else None
        rate = (
            heartbeat.throughput
            if unit and heartbeat.throughput and 0 < heartbeat.throughput < _LARGEST
            else None
        )
        said = (step, phase, rate, _whole(heartbeat.total_steps))
        if said == self._said.get(key) or (step is None and phase is None and rate is None):
            return None
        self._said[key] = said
        scope = heartbeat.throughput_scope if heartbeat.throughput_scope in _SCOPES else "run"
        return wire.Progress(
            run_id=run_id,
            at=min(now, heartbeat.at) if heartbeat.at is not None else now,
            rank=rank,
            step=step,
            total_steps=_whole(heartbeat.total_steps),
            throughput=rate,
            throughput_unit=unit if rate is not None else None,
            throughput_scope=scope if rate is not None else None,
            phase=phase,
        )

    def counts_steps(self, key: ProcessKey) -> bool:
        """Whether this process reports its own steps, so that its logs need not be believed about them."""
        said = self._said.get(key)
        return said is not None and said[0] is not None

    def blind(self) -> list[str]:
        """What is wrong with job files, one sentence each."""
        found = []
        if self._unprepared:
            found.append(self._unprepared)
        refused = sum(files.refused for files in self._files.values())
        if refused:
            found.append(f"{refused} job files are refused: wrong owner, link, size, name or content")
        if self._unmatched:
            found.append(f"{self._unmatched} job files name no living GPU process of their owner")
        if self._lanes.busy:
            found.append(
                f"the job directories of {len(self._lanes.busy)} users lie on a file system that does not answer"
            )
        return found

    def close(self) -> None:
        """Stop reading."""
        self._lanes.close()

    def _named_folders(self, members: Sequence[Member]) -> dict[JobFolder, list[Member]]:
        """Where WATCHTOWER_DIR points, read once for all processes that see the same file systems."""
        first: dict[tuple[str, str, int], JobFolder] = {}
        found: dict[JobFolder, list[Member]] = {}
        for member in members:
            named, uid = member.claim.job_folder, member.owner.uid
            if named and named.startswith("/"):
                root, view = _root_of(self._proc_root, member.key.pid)
                folder = first.setdefault((view, named, uid), JobFolder(root, named, uid))
                found.setdefault(folder, []).append(member)
        return found

    def _match(self, folders: dict[JobFolder, list[Member]]) -> None:
        matched: dict[ProcessKey, Heartbeat] = {}
        self._unmatched = 0
        for folder, files in self._files.items():
            for heartbeat in files.heartbeats:
                member = _speaker(heartbeat, folders[folder])
                if member is None:
                    self._unmatched += 1
                    continue
                before = matched.get(member.key)
                if before is None or (heartbeat.at or 0.0) >= (before.at or 0.0):
                    matched[member.key] = heartbeat
        self._matched = matched
        self._said = {key: said for key, said in self._said.items() if key in matched}

    def _prepare(self, uid: int, now_s: float) -> None:
        """Make the user's folder, if we may: only root can give it away."""
        if now_s - self._prepared.get(uid, -_PREPARE_EVERY_S) < _PREPARE_EVERY_S:
            return
        self._prepared[uid] = now_s
        if os.geteuid() not in (0, uid):
            return
        try:
            _make_folder(self._base, uid)
            self._unprepared = None
        except OSError as error:
            self._unprepared = (
                f"the job directory {self._base}/{uid} cannot be made ({error.strerror}): jobs can only write where"
                " WATCHTOWER_DIR points"
            )


def _speaker(heartbeat: Heartbeat, members: Sequence[Member]) -> Member | None:
    """The process that a file speaks for, by its pid here or, for a container, inside; None when there is none or no telling."""
    by_inner = [member for member in members if member.owner.inner_pid == heartbeat.pid]
    if len(by_inner) > 1:  # several containers share one folder, and each has a process of this number
        by_inner = [member for member in by_inner if member.claim.rank == heartbeat.rank]
    if len(by_inner) == 1:
        return by_inner[0]
    return next((member for member in members if member.key.pid == heartbeat.pid), None)


def _read_folders(folders: Sequence[JobFolder]) -> list[JobFiles]:
    return [read_job_folder(folder) for folder in folders]


def _make_folder(base: str, uid: int) -> None:
    os.makedirs(base, mode=0o755, exist_ok=True)  # noqa: PTH103 - the rest of this function works on descriptors
    parent = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            os.mkdir(str(uid), mode=0o700, dir_fd=parent)
        except FileExistsError:
            return
        made = os.open(str(uid), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            if stat.S_ISDIR(os.fstat(made).st_mode) and os.fstat(made).st_uid == os.geteuid() != uid:
                os.fchown(made, uid, -1)
        finally:
            os.close(made)
    finally:
        os.close(parent)


def _registration(heartbeat: Heartbeat) -> Registration:
    name = heartbeat.run_name
    return Registration(
        run_id=heartbeat.run_id,
        rank=heartbeat.rank,
        run_name=name[:128] if name and name.isprintable() else None,
        local_rank=_whole(heartbeat.local_rank),
        world_size=_whole(heartbeat.world_size),
        attempt=_whole(heartbeat.attempt),
    )


def _whole(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < _LARGEST else None


def _root_of(proc_root: str, pid: int) -> tuple[str, str]:
    """The root directory of a process (its container's, where it has one), without touching what lies there.

    Returns:
        A path to it, ours where that may not be followed; and which view of the file systems it is: the same for processes
        that see the same.
    """
    link = f"{proc_root}/{pid}/root"
    try:
        within = str(Path(link).readlink())
    except OSError:
        return "/", "ours"
    try:
        return link, f"{Path(f'{proc_root}/{pid}/ns/mnt').readlink()} {within}"
    except OSError:
        return link, link
