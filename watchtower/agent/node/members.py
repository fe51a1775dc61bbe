"""Keeps the processes on this node's GPUs from first sight to exit: identity, counters, state. Reads /proc only; publishes nothing itself."""

import os
import pwd
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from watchtower import wire
from watchtower.agent.node.identity import Claim, claim
from watchtower.agent.node.lanes import Lanes
from watchtower.agent.node.proc import Absent, Owner, Proc, ProcessKey
from watchtower.agent.node.resolve import Candidate, Identity, Registration, Resolved, resolve
from watchtower.agent.node.usage import Usage, UsageCounter

OFF_GPU_GRACE_S = (
    30.0  # a process stays a rank this long after NVML stopped listing it: the list may be what failed
)
_USAGE_EVERY_S = 3.0
_ALL_THREADS_EVERY = 10  # readings of usage
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_RETRY_ENVIRON_S = 30.0
_OWNED_AFTER_S = 300.0  # its last process gone, a run stays its user's until it has been judged: nobody may finish it for him
_WAIT_S = 0.1


class OnGpu(Protocol):
    """One entry of a GPU's process list."""

    @property
    def pid(self) -> int:
        """Process number in the host's namespace."""
        ...

    @property
    def gpu_uuid(self) -> str:
        """The GPU."""
        ...

    @property
    def used_mib(self) -> float | None:
        """Memory used there, None when not known."""
        ...


class _Start(msgspec.Struct, frozen=True):
    """What a process was started with."""

    key: ProcessKey
    user: str
    environ: dict[str, str] | Absent
    cgroup: str


class Member(msgspec.Struct, kw_only=True):
    """One process that is or was on a GPU."""

    key: ProcessKey
    owner: Owner
    parent_pid: int
    started_at: float | None
    counter: UsageCounter
    claim: Claim = Claim()
    user: str
    environ_asked: bool = False  # an answer has come, if only a refusal
    environ_read: bool = False
    first_seen_s: float = 0.0
    listed_at_s: float = 0.0
    gpu_uuids: tuple[str, ...] = ()
    gpu_memory_mib: float | None = None
    place: int = 0  # order on the node's GPUs
    state: str = "?"
    wait_status: int = 0
    usage: Usage | None = None
    usage_at_s: float = -1e9
    usage_readings: int = 0
    registration: Registration | None = None
    identity: Identity | None = None


class Members:
    """All of them; call refresh() once a look."""

    def __init__(self, proc: Proc, *, host: str, user_only: bool) -> None:
        self._proc = proc
        self._host = host
        self._only_uid = os.getuid() if user_only else None
        self._members: dict[ProcessKey, Member] = {}
        self._lanes: Lanes[_Start] = Lanes()
        self._owners: dict[str, tuple[int, float]] = {}  # run id -> user, until when
        self._boot_time = proc.boot_time()
        self._resolved = Resolved({}, 0, 0)
        self._gone = 0
        self._other_users = 0

    def refresh(self, listed: Sequence[OnGpu], now_s: float) -> list[Member]:
        """Take in NVML's lists (in the order of the GPUs) and look at every process again.

        Returns:
            Members that have ended since the last look, zombies included; they are forgotten then.
        """
        self._gone = self._other_users = 0
        by_pid: dict[int, list[OnGpu]] = {}
        for entry in listed:
            if 0 < entry.pid < 2**31:
                by_pid.setdefault(entry.pid, []).append(entry)
        for place, (pid, entries) in enumerate(by_pid.items()):
            self._take_in(pid, entries, place, now_s)
        for start in self._lanes.collect(_WAIT_S):
            self._take_claim(start)
        return self._drop_ended()

    def current(self, now_s: float) -> list[Member]:
        """Living processes that NVML lists, or did until a moment ago, in GPU order."""
        listed = (m for m in self._members.values() if now_s - m.listed_at_s <= OFF_GPU_GRACE_S)
        return sorted(listed, key=lambda m: m.place)

    def resolve(self, registrations: Mapping[ProcessKey, Registration], now_s: float) -> list[Member]:
        """Give everyone their run and rank; returns the members that are ranks now, in GPU order."""
        current = self.current(now_s)
        for member in current:
            member.registration = registrations.get(member.key, member.registration)
        candidates = [
            Candidate(
                key=m.key,
                parent_pid=m.parent_pid,
                uid=m.owner.uid,
                claim=m.claim,
                registration=m.registration,
            )
            for m in current
        ]
        owners = {run_id: uid for run_id, (uid, until_s) in self._owners.items() if until_s > now_s}
        self._resolved = resolve(candidates, owners, self._host)
        for member in current:
            member.identity = self._resolved.identities.get(member.key)
        self._owners = {run_id: known for run_id, known in self._owners.items() if known[1] > now_s}
        for m in self._members.values():
            if m.identity is not None:
                self._owners[m.identity.run_id] = (m.owner.uid, now_s + _OWNED_AFTER_S)
        return [m for m in current if m.identity is not None]

    def wire_rank(self, member: Member, identity: Identity, now_s: float) -> wire.Rank:
        """One rank as published; counters are read again when they are a few seconds old."""
        if now_s - member.usage_at_s >= _USAGE_EVERY_S:
            member.usage = member.counter.read(all_threads=member.usage_readings % _ALL_THREADS_EVERY == 0)
            member.usage_at_s = now_s
            member.usage_readings += 1
        usage = member.usage
        return wire.Rank(
            run_id=identity.run_id,
            pid=member.key.pid,
            run_name=identity.run_name,
            rank=identity.rank,
            local_rank=identity.local_rank,
            world_size=identity.world_size,
            rank_source=identity.source,
            attempt=identity.attempt,
            user=member.user,
            labels=member.claim.labels,
            started_at=member.started_at,
            gpu_uuids=member.gpu_uuids,
            gpu_memory_mib=member.gpu_memory_mib,
            proc_state=member.state,
            cpu_s=usage.cpu_s if usage else None,
            read_bytes=usage.read_bytes if usage else None,
            write_bytes=usage.write_bytes if usage else None,
        )

    def close(self) -> None:
        """Stop reading."""
        self._lanes.close()

    def blind(self) -> list[str]:
        """What about these processes cannot be seen, one sentence each."""
        unreadable = sum(m.environ_asked and not m.environ_read for m in self._members.values())
        silent = sum(not m.environ_asked for m in self._members.values())
        no_storage = sum(m.usage is not None and m.usage.read_bytes is None for m in self._members.values())
        sentences = (
            (
                self._gone,
                "{} processes on the GPUs are not in /proc: ended, hidden (hidepid) or in another pid namespace",
            ),
            (
                self._other_users,
                "{} processes on the GPUs belong to other users and are not watched (--user)",
            ),
            (
                unreadable,
                "the environment of {} GPU processes may not be read (CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE missing?)",
            ),
            (silent, "the environment of {} GPU processes does not come: reading it has not returned"),
            (no_storage, "storage counters of {} ranks cannot be read; reading them needs CAP_SYS_PTRACE"),
            (
                self._resolved.unmarked,
                "{} GPU processes show no sign of a training run (no rank, no scheduler job) and are left out",
            ),
            (
                self._resolved.foreign,
                "{} GPU processes name a run that belongs to another user on this node and are left out",
            ),
        )
        return [text.format(count) for count, text in sentences if count]

    def _take_in(self, pid: int, entries: Sequence[OnGpu], place: int, now_s: float) -> None:
        seen = self._proc.stat(pid)
        if seen is None:
            self._gone += 1
            return
        member = self._members.get(seen.key)
        if member is None:
            owner = self._proc.owner(pid)
            if owner is None:
                self._gone += 1
                return
            if self._only_uid is not None and owner.uid != self._only_uid:
                self._other_users += 1
                return
            started = (
                self._boot_time + seen.key.start_ticks / _TICKS_PER_S if self._boot_time is not None else None
            )
            member = Member(
                key=seen.key,
                owner=owner,
                user=str(owner.uid),
                parent_pid=seen.parent_pid,
                started_at=started,
                counter=UsageCounter(self._proc, pid),
                first_seen_s=now_s,
            )
            self._members[seen.key] = member
        retry = not member.environ_read and now_s - member.first_seen_s <= _RETRY_ENVIRON_S
        if retry or not member.environ_asked:
            self._lanes.submit(str(member.key), partial(self._read_start, member), owner=member.owner.uid)
        by_memory = sorted(entries, key=lambda entry: -(entry.used_mib or 0.0))
        member.listed_at_s = now_s
        member.gpu_uuids = tuple(dict.fromkeys(entry.gpu_uuid for entry in by_memory))
        known = [entry.used_mib for entry in entries if entry.used_mib is not None]
        member.gpu_memory_mib = sum(known) if known else None
        member.place = place

    def _read_start(self, member: Member) -> _Start:
        """In a lane: the pages of an environment may lie on a file system that does not answer, as may who knows users' names."""
        environ = self._proc.environ(member.key.pid)
        return _Start(member.key, _user_name(member.owner.uid), environ, self._proc.cgroup(member.key.pid))

    def _take_claim(self, start: _Start) -> None:
        member = self._members.get(start.key)
        again = self._proc.stat(start.key.pid)
        if member is None or again is None or again.key != start.key:
            return  # the pid was used again while we read: that was somebody else's
        member.user, member.environ_asked = start.user, True
        member.environ_read = not isinstance(start.environ, Absent)
        known = {} if isinstance(start.environ, Absent) else start.environ
        member.claim = claim(known, start.cgroup, self._host)

    def _drop_ended(self) -> list[Member]:
        ended = []
        for key, member in list(self._members.items()):
            seen = self._proc.stat(key.pid)
            if seen is not None and seen.key == key:
                member.state, member.parent_pid = seen.state, seen.parent_pid
                if seen.state not in ("Z", "X"):
                    continue
                # The kernel shows 0 to those who may not know; it may be believed where the environment could be read.
                if seen.wait_status or member.environ_read:
                    member.wait_status = seen.wait_status
                else:
                    member.wait_status = -1
            else:
                member.wait_status = -1
            ended.append(member)
            del self._members[key]
        return ended


_names: dict[int, str] = {}


def _user_name(uid: int) -> str:
    if uid not in _names:
        try:
            _names[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            _names[uid] = str(uid)
    return _names[uid]
