"""Chooses which logs to follow: what ranks and their launchers hold open for writing, and what the settings name. Parses nothing itself."""

import glob
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import PurePath

import msgspec

from watchtower.agent.node.follow import (
    MAX_BYTES_PER_LOOK,
    Appended,
    FileKey,
    FollowedFile,
    open_held_log,
    open_named_log,
)
from watchtower.agent.node.identity import safe_id
from watchtower.agent.node.lanes import Lanes
from watchtower.agent.node.proc import Absent, Proc

_SCAN_EVERY_S = 5.0
_KEEP_AFTER_S = 15.0  # a crash is written down while the process goes
_RETRY_OPEN_S = 60.0
_WAIT_S = 0.2
_MAX_FILES = 512  # below the usual limit of 1024 descriptors
_MAX_FILES_PER_USER = 128  # nobody's logs may take the place of everybody else's
_MAX_BYTES_PER_LANE = 512 * 1024  # in one look; parsing is what costs
_MAX_ANCESTORS = 6
_LOG_SUFFIXES = frozenset({".log", ".out", ".err", ".txt", ".jsonl"})


class Writer(msgspec.Struct, frozen=True):
    """A rank whose logs are wanted."""

    pid: int
    uid: int
    run_id: str
    rank: int | None
    started_at: float | None


class LogNews(msgspec.Struct, frozen=True):
    """What one log said."""

    run_id: str
    rank: int | None  # whose log it is; None when several ranks share it
    started_at: float | None
    appended: Appended


class _Wanted(msgspec.Struct, frozen=True):
    lane: str  # what it shares with others that hang when it hangs
    path: str
    uid: int
    run_id: str
    ranks: frozenset[int | None]
    started_at: float | None
    link: bool


class _Entry(msgspec.Struct):
    wanted: _Wanted
    wanted_at_s: float
    file: FollowedFile | None = None
    tried_at_s: float = -1e9


_Work = tuple[str, _Wanted, FollowedFile | None]
_Pattern = tuple[str, Writer, bool]  # a glob, whose, and whether it names the rank
_Returned = tuple[str, FollowedFile | None, Appended | None]


class LogWatch:
    """Follows them all; one look a second. A file system that does not answer costs its own files only."""

    def __init__(self, proc: Proc, globs: Sequence[str]) -> None:
        self._proc = proc
        self._globs = globs
        self._lanes: Lanes[Callable[[], list[LogNews]]] = Lanes()
        self._entries: dict[str, _Entry] = {}
        self._globbed: dict[int, list[_Wanted]] = {}
        self._scanned_at_s = -1e9
        self._scanned_pids: frozenset[int] = frozenset()
        self._denied = 0
        self._ambiguous = False

    def look(self, writers: Sequence[Writer], now_s: float) -> list[LogNews]:
        """What the logs of these ranks said since the last look."""
        pids = frozenset(writer.pid for writer in writers)
        if now_s - self._scanned_at_s >= _SCAN_EVERY_S or pids - self._scanned_pids:
            self._scanned_at_s, self._scanned_pids = now_s, pids
            self._scan(writers, now_s)
        by_lane: dict[str, list[tuple[str, _Entry]]] = {}
        for key, entry in self._entries.items():
            if entry.file is not None or now_s - entry.tried_at_s >= _RETRY_OPEN_S:
                by_lane.setdefault(entry.wanted.lane, []).append((key, entry))
        for lane, batch in by_lane.items():
            work = [(key, entry.wanted, entry.file) for key, entry in batch]
            job = partial(self._read, work, now_s)
            if self._lanes.submit(lane, job, owner=batch[0][1].wanted.uid):
                for _, entry in batch:
                    entry.tried_at_s = now_s
        news: list[LogNews] = []
        for finish in self._lanes.collect(_WAIT_S):
            news.extend(finish())
        self._forget(now_s)
        return news

    def blind(self) -> list[str]:
        """Which logs cannot be read now, one sentence each."""
        found = []
        stuck = sum(entry.wanted.lane in self._lanes.busy for entry in self._entries.values())
        if stuck:
            found.append(f"{stuck} log files lie on a file system that does not answer")
        if self._lanes.exhausted:
            found.append("so many file systems do not answer that no further log can be read")
        if self._denied:
            found.append(f"open files of {self._denied} ranks cannot be listed; that needs CAP_SYS_PTRACE")
        if self._ambiguous:
            found.append("a log pattern without {run_id} is not used while several runs share this node")
        return found

    def close(self) -> None:
        """Close what is not stuck."""
        self._lanes.collect(_WAIT_S)
        for entry in self._entries.values():
            if entry.file is not None and entry.wanted.lane not in self._lanes.busy:
                entry.file.close()
        self._entries.clear()
        self._lanes.close()

    def _scan(self, writers: Sequence[Writer], now_s: float) -> None:
        self._denied = 0
        wanted: dict[str, _Wanted] = {}
        for writer in writers:
            for key, one in self._held_by(writer):
                ranks = wanted[key].ranks if key in wanted else frozenset[int | None]()
                wanted[key] = msgspec.structs.replace(one, ranks=ranks | one.ranks)
        by_user: dict[int, list[_Pattern]] = {}
        for pattern in self._patterns(writers):
            by_user.setdefault(pattern[1].uid, []).append(pattern)
        for uid, patterns in by_user.items():
            self._lanes.submit(f"{uid} patterns", partial(self._glob, uid, patterns), owner=uid)
        self._globbed = {uid: found for uid, found in self._globbed.items() if uid in by_user}
        wanted.update((one.path, one) for found in self._globbed.values() for one in found)
        per_user = Counter(entry.wanted.uid for entry in self._entries.values())
        for key, one in wanted.items():
            entry = self._entries.get(key)
            if entry is not None:
                entry.wanted, entry.wanted_at_s = one, now_s
            elif len(self._entries) < _MAX_FILES and per_user[one.uid] < _MAX_FILES_PER_USER:
                self._entries[key] = _Entry(one, now_s)
                per_user[one.uid] += 1

    def _held_by(self, writer: Writer) -> Iterable[tuple[str, _Wanted]]:
        pid, standard_only = writer.pid, False
        for _ in range(_MAX_ANCESTORS):
            files = self._proc.written_files(pid, standard_only=standard_only)
            if isinstance(files, Absent):
                self._denied += files is Absent.DENIED and not standard_only
                files = []
            for file in files:
                if file.standard or PurePath(file.name).suffix in _LOG_SUFFIXES:
                    lane = f"{writer.uid} mount {file.mount_id}"
                    one = _Wanted(
                        lane,
                        file.link,
                        writer.uid,
                        writer.run_id,
                        frozenset({writer.rank}),
                        writer.started_at,
                        True,
                    )
                    yield f"{writer.uid}:{file.mount_id}:{file.name}", one
            seen = self._proc.stat(pid)
            owner = self._proc.owner(seen.parent_pid) if seen is not None and seen.parent_pid > 1 else None
            if seen is None or owner is None or owner.uid != writer.uid:
                return
            pid, standard_only = seen.parent_pid, True

    def _patterns(self, writers: Sequence[Writer]) -> Iterable[_Pattern]:
        self._ambiguous = False
        runs = {writer.run_id for writer in writers}
        for pattern in self._globs:
            if "{run_id}" not in pattern and len(runs) > 1:
                self._ambiguous = True
                continue
            for writer in writers:
                if not safe_id(writer.run_id) or ("{rank}" in pattern and writer.rank is None):
                    continue
                filled = pattern.replace("{run_id}", glob.escape(writer.run_id)).replace(
                    "{rank}", str(writer.rank)
                )
                yield filled, writer, "{rank}" in pattern

    def _glob(self, uid: int, patterns: Sequence[_Pattern]) -> Callable[[], list[LogNews]]:
        found = _expand(patterns)

        def finish() -> list[LogNews]:
            self._globbed[uid] = found
            return []

        return finish

    def _read(self, work: Sequence[_Work], now_s: float) -> Callable[[], list[LogNews]]:
        """Runs in a lane; gives what the calling thread does with the results: only it touches the entries."""
        returned = _read_all(work)

        def finish() -> list[LogNews]:
            followed = {e.file.key: k for k, e in self._entries.items() if e.file is not None}
            return [news for one in returned for news in self._finish_one(one, followed, now_s)]

        return finish

    def _finish_one(self, one: _Returned, followed: dict[FileKey, str], now_s: float) -> list[LogNews]:
        key, file, appended = one
        entry = self._entries.get(key)
        if entry is None or (file is not None and followed.get(file.key, key) != key):
            if file is not None:
                file.close()  # forgotten meanwhile, or the same file under another name
            return []
        if file is None:
            entry.file = None
            return []
        entry.file = file
        followed[file.key] = key
        if appended is None or not appended.marks:
            return []
        ranks = entry.wanted.ranks
        rank = next(iter(ranks)) if len(ranks) == 1 else None
        return [LogNews(entry.wanted.run_id, rank, entry.wanted.started_at, appended)]

    def _forget(self, now_s: float) -> None:
        for key, entry in list(self._entries.items()):
            if now_s - entry.wanted_at_s > _KEEP_AFTER_S and entry.wanted.lane not in self._lanes.busy:
                if entry.file is not None:
                    entry.file.close()
                del self._entries[key]


def _read_all(work: Sequence[_Work]) -> list[_Returned]:
    """Open and read one lane's files; runs on a lane's thread."""
    returned: list[_Returned] = []
    most = min(MAX_BYTES_PER_LOOK, _MAX_BYTES_PER_LANE // len(work))
    for key, wanted, opened in work:
        file = opened
        try:
            if file is None:
                open_log = open_held_log if wanted.link else open_named_log
                descriptor = open_log(wanted.path, wanted.uid)
                file = FollowedFile(descriptor, late=True) if descriptor is not None else None
            returned.append((key, file, file.read(most) if file is not None else None))
        except OSError:
            if file is not None:
                file.close()
            returned.append((key, None, None))
    return returned


def _expand(patterns: Sequence[_Pattern]) -> list[_Wanted]:
    found: dict[str, _Wanted] = {}
    for pattern, writer, per_rank in patterns:
        for path in sorted(glob.glob(pattern))[-_MAX_FILES:]:  # noqa: PTH207 - patterns are absolute text
            rank = writer.rank if per_rank else None
            lane = f"{writer.uid} folder {PurePath(path).parent}"
            found[path] = _Wanted(
                lane, path, writer.uid, writer.run_id, frozenset({rank}), writer.started_at, False
            )
    return list(found.values())
