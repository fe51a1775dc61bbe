"""Turns an agent's words into an observation stamped with the watcher's clock; the one place that absorbs old and newer agents."""

from enum import StrEnum
from typing import TypeVar

from watchtower.model import (
    EventReading,
    ExitReading,
    GpuReading,
    GpuState,
    NodeReading,
    NvmlState,
    Observation,
    Phase,
    ProgressReading,
    RankReading,
    RankSource,
)
from watchtower.wire import Snapshot

_Word = TypeVar("_Word", bound=StrEnum)

# A job may write any number into its heartbeat file, and JSON knows no largest one; SQLite and floating point do.
_MOST = 2**53


def observe(snapshot: Snapshot, *, at: float, node: str) -> Observation:
    """Translate one answered poll.

    Args:
        snapshot: what the agent said; its times are the node's clock.
        at: when we received it, our clock, Unix seconds.
        node: the name we know this node by; the agent's own claim does not override it.

    Returns:
        An observation in which every time is the watcher's: ages inside the message, counted back from `at`. What lies in
        the node's future (a stepped clock) is taken as now. A word that we do not know becomes the least we may claim, and a
        count that cannot be one (negative, or beyond what can be counted to) becomes "not known".
    """
    shift = at - snapshot.taken_at

    def ours(moment: float) -> float:
        return min(at, moment + shift)

    return Observation(
        at=at,
        node=node,
        reading=NodeReading(
            agent_version=snapshot.agent.version,
            agent_started_at=snapshot.agent.started_at,
            boot_id=snapshot.agent.boot_id,
            nvml_state=_word(NvmlState, snapshot.nvml.state, NvmlState.UNRESPONSIVE),
            nvml_detail=snapshot.nvml.detail,
            gpus=tuple(
                GpuReading(
                    gpu.uuid,
                    gpu.index,
                    gpu.model,
                    _word(GpuState, gpu.state, GpuState.UNREADABLE),
                    gpu.power_limit_w,
                    gpu.memory_total_mib,
                    gpu.temperature_c,
                    gpu.clock_event_reasons,
                    gpu.samples,
                )
                for gpu in snapshot.gpus
            ),
            ranks=tuple(
                RankReading(
                    rank.run_id,
                    rank.run_name,
                    _count(rank.rank),
                    _count(rank.local_rank),
                    _count(rank.world_size),
                    _word(RankSource, rank.rank_source, RankSource.INFERRED),
                    _count(rank.attempt),
                    rank.user,
                    rank.labels,
                    rank.pid,
                    rank.started_at,
                    rank.gpu_uuids,
                    rank.gpu_memory_mib,
                    rank.proc_state,
                    rank.cpu_s,
                    rank.read_bytes,
                    rank.write_bytes,
                )
                for rank in snapshot.ranks
            ),
            exits=tuple(
                ExitReading(e.run_id, _count(e.rank), e.pid, ours(e.at), e.exit_code, e.signal, e.oom_killed)
                for e in snapshot.exits
            ),
            progress=tuple(
                ProgressReading(
                    p.run_id,
                    _count(p.rank),
                    ours(p.at),
                    _count(p.step),
                    _count(p.total_steps),
                    p.throughput,
                    p.throughput_unit,
                    p.throughput_scope,
                    None if p.phase is None else _word(Phase, p.phase, None),
                )
                for p in snapshot.progress
            ),
            events=tuple(
                EventReading(ours(e.at), e.kind, e.run_id, _count(e.rank), e.gpu_uuid, e.code, e.text)
                for e in snapshot.events
            ),
        ),
    )


def _count(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= _MOST else None


_Default = TypeVar("_Default")


def _word(kind: type[_Word], text: str, otherwise: _Default) -> _Word | _Default:
    return kind._value2member_map_.get(text, otherwise)  # type: ignore[return-value]
