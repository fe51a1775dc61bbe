"""Joins everything an agent learns of a node outside NVML into one look a second. Never calls NVML, opens no socket."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from watchtower import wire
from watchtower.agent.node.exits import Exits
from watchtower.agent.node.kernel import KernelLog, gpu_of
from watchtower.agent.node.logs import LogNews, LogWatch, Writer
from watchtower.agent.node.members import Member, Members
from watchtower.agent.node.proc import Proc
from watchtower.agent.node.registry import Registry
from watchtower.clock import Clock
from watchtower.trainlog import Mark

_MAX_EVENTS_PER_LOOK = 128
_MAX_EVENTS_PER_RUN = 16  # in one look: a run that shouts must not drown the others
_REMEMBER_PIDS_S = 60.0


class GpuProcess(msgspec.Struct, frozen=True):
    """One entry of a GPU's process list, as NVML gave it."""

    pid: int
    gpu_uuid: str
    used_mib: float | None


class NodeReport(msgspec.Struct, frozen=True):
    """What one look found; exits, progress and events are only what is new since the look before."""

    ranks: tuple[wire.Rank, ...]
    exits: tuple[wire.Exit, ...]
    progress: tuple[wire.Progress, ...]
    events: tuple[wire.Event, ...]
    blind: tuple[str, ...]  # sentences: what cannot be seen, and why


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look on this node.

    `log_globs` may hold {run_id} and {rank}. With `user_only` other users' processes are left alone, and the blind spots say so.
    """

    proc_root: Path = Path("/proc")
    user_only: bool = False
    job_directory: str = "/run/watchtower"
    log_globs: tuple[str, ...] = ()
    kmsg_path: str = "/dev/kmsg"


class _Known(msgspec.Struct, frozen=True):
    run_id: str
    rank: int | None
    until_s: float


class NodeSide:
    """The node's side of the agent; call look() from one thread.

    `pci_by_uuid` (GPU uuid -> PCI address as NVML spells it) may be set at any time, so that XIDs can be put to a GPU.
    """

    def __init__(self, settings: NodeSettings, clock: Clock) -> None:
        self._clock = clock
        self.pci_by_uuid: Mapping[str, str] = {}
        self._proc = Proc(settings.proc_root)
        host = (
            "".join(char if char.isalnum() or char in ".-" else "-" for char in socket.gethostname())
            or "node"
        )
        self._members = Members(self._proc, host=host, user_only=settings.user_only)
        self._registry = Registry(settings.job_directory, str(settings.proc_root))
        self._logs = LogWatch(self._proc, settings.log_globs)
        self._kernel = KernelLog(settings.kmsg_path)
        self._exits = Exits(kernel_log=self._kernel.blind is None)
        self._by_pid: dict[int, _Known] = {}
        self._by_inner_pid: dict[tuple[str, int], int | None] = {}

    def look(self, gpu_processes: Sequence[GpuProcess]) -> NodeReport:
        """Look at everything once.

        Args:
            gpu_processes: NVML's process lists of all GPUs, in the order of the GPUs (ranks that nothing names are
                numbered in that order); empty when NVML does not answer, which ends no rank by itself.

        Returns:
            What there is now, and what is new. Never raises for anything that a job or the node does.
        """
        now_s, now = self._clock.monotonic(), self._clock.now()
        events = self._kernel_events(now, now_s)
        by_run: dict[str, list[wire.Event]] = {}
        for member in self._members.refresh(gpu_processes, now_s):
            self._note_exit(member, now, now_s)
        registrations = self._registry.look(self._members.current(now_s), now_s)
        members = self._members.resolve(registrations, now_s)
        self._remember(members, now_s)
        ranks, progress = self._ranks(members, now, now_s)
        for news in self._logs.look([_writer(member) for member in members], now_s):
            if not any(
                p.identity and p.identity.run_id == news.run_id and self._registry.counts_steps(p.key)
                for p in members
            ):
                progress.extend(_log_progress(news, now))
            by_run.setdefault(news.run_id, []).extend(self._log_events(news, now, now_s))
        for said in by_run.values():
            events.extend(list(dict.fromkeys(said))[:_MAX_EVENTS_PER_RUN])
        return NodeReport(
            ranks=tuple(ranks),
            exits=tuple(self._exits.ready(now_s)),
            progress=tuple(progress),
            events=tuple(dict.fromkeys(events))[:_MAX_EVENTS_PER_LOOK],
            blind=tuple(self._blind()),
        )

    def close(self) -> None:
        """Let go of files and threads."""
        self._logs.close()
        self._registry.close()
        self._members.close()
        self._kernel.close()

    def _ranks(
        self, members: Sequence[Member], now: float, now_s: float
    ) -> tuple[list[wire.Rank], list[wire.Progress]]:
        ranks, progress = [], []
        for member in members:
            identity = member.identity
            if identity is None:
                continue
            ranks.append(self._members.wire_rank(member, identity, now_s))
            said = self._registry.progress(member.key, identity.run_id, identity.rank, now)
            if said is not None:
                progress.append(said)
        return ranks, progress

    def _remember(self, members: Sequence[Member], now_s: float) -> None:
        """Which run and rank a pid is, for a while longer than it lives: logs and the kernel speak of the dead."""
        self._by_pid = {pid: known for pid, known in self._by_pid.items() if known.until_s > now_s}
        for member in members:
            if member.identity is None:
                continue
            known = _Known(member.identity.run_id, member.identity.rank, now_s + _REMEMBER_PIDS_S)
            for pid in {member.key.pid} | member.counter.pids:
                self._by_pid[pid] = known
            self._by_inner_pid[known.run_id, member.owner.inner_pid] = known.rank
        runs = {known.run_id for known in self._by_pid.values()}
        self._by_inner_pid = {key: rank for key, rank in self._by_inner_pid.items() if key[0] in runs}

    def _note_exit(self, member: Member, now: float, now_s: float) -> None:
        if member.identity is not None:
            self._exits.ended(
                member.identity.run_id,
                member.identity.rank,
                pid=member.key.pid,
                inner_pid=member.owner.inner_pid,
                wait_status=member.wait_status,
                at=now,
                now_s=now_s,
            )

    def _kernel_events(self, now: float, now_s: float) -> list[wire.Event]:
        events = []
        for line in self._kernel.read(now_s):
            if line.kind == "oom_kill" and line.pid is not None:
                self._exits.oom_killed(line.pid, now_s)
            known = self._by_pid.get(line.pid) if line.pid is not None else None
            if line.kind == "blocked_task" and known is None:
                continue  # some other program of this node
            uuid = gpu_of(line.pci, self.pci_by_uuid)
            where = "" if line.pci is None or uuid else " (GPU at {:04x}:{:02x}:{:02x})".format(*line.pci)
            events.append(
                wire.Event(
                    at=now,
                    kind=line.kind,
                    run_id=known.run_id if known else None,
                    rank=known.rank if known else None,
                    gpu_uuid=uuid,
                    code=line.code,
                    text=line.text + where,
                )
            )
        return events

    def _log_events(self, news: LogNews, now: float, now_s: float) -> list[wire.Event]:
        events: list[wire.Event] = []
        if news.appended.history:
            return events
        for mark in news.appended.marks:
            if mark.kind is None:
                continue
            if mark.pid is not None and mark.exit_code is not None:
                self._exits.launcher_said(news.run_id, mark.pid, mark.exit_code, now_s)
            if mark.kind == "rank_exit":
                continue
            events.append(
                wire.Event(
                    at=now,
                    kind=mark.kind,
                    run_id=news.run_id,
                    rank=self._spoken_of(news, mark),
                    code=mark.code,
                    text=mark.text,
                )
            )
        return events

    def _spoken_of(self, news: LogNews, mark: Mark) -> int | None:
        if mark.rank is not None:
            return mark.rank
        if mark.pid is not None:
            return self._by_inner_pid.get((news.run_id, mark.pid))
        return news.rank

    def _blind(self) -> list[str]:
        kernel = [self._kernel.blind] if self._kernel.blind else []
        return [*self._members.blind(), *self._registry.blind(), *self._logs.blind(), *kernel]


def _writer(member: Member) -> Writer:
    identity = member.identity
    assert identity is not None  # noqa: S101 - members that resolve() returned have one
    return Writer(member.key.pid, member.owner.uid, identity.run_id, identity.rank, member.started_at)


def _log_progress(news: LogNews, now: float) -> list[wire.Progress]:
    """The newest of each thing that a log said, in one record per look. What was there before we came is dated by the file."""
    at = now
    if news.appended.history:
        written = news.appended.written_at
        if written is not None and news.started_at is not None and written < news.started_at:
            return []  # an earlier attempt wrote that
        at = min(now, written) if written is not None else now
    marks = [
        mark
        for mark in news.appended.marks
        if mark.step is not None or mark.throughput is not None or mark.phase
    ]
    if not marks:
        return []
    stepped = next((mark for mark in reversed(marks) if mark.step is not None), None)
    rated = next((mark for mark in reversed(marks) if mark.throughput is not None), None)
    phase = next((mark.phase for mark in reversed(marks) if mark.phase), None)
    newest = wire.Progress(
        run_id=news.run_id,
        at=at,
        rank=news.rank,
        step=stepped.step if stepped else None,
        total_steps=stepped.total if stepped else None,
        throughput=rated.throughput if rated else None,
        throughput_unit=rated.unit if rated else None,
        throughput_scope=rated.scope if rated else None,
        phase=phase,
    )
    if (
        phase != "checkpoint"
        and not news.appended.history
        and any(mark.phase == "checkpoint" for mark in marks)
    ):
        # A save that began and ended between two looks: without a word of it the last checkpoint would seem older than it is.
        return [wire.Progress(run_id=news.run_id, at=at, rank=news.rank, phase="checkpoint"), newest]
    return [newest]
