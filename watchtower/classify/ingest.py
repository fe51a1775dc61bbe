"""Takes observations into memory: who is there, what each board does, what trainers said. Judges nothing beyond one rank."""

from collections.abc import Iterable, MutableMapping

from watchtower.classify.activity import last_worked, mean, sample_activity
from watchtower.classify.belonging import belongs, heard, key_of
from watchtower.classify.learn import follow_power_limit, learn_working_level
from watchtower.classify.memory import NodeMemory, RankMemory, RunMemory
from watchtower.classify.progress import restart, take_event, take_progress
from watchtower.classify.settings import Thresholds
from watchtower.model import (
    Activity,
    EventReading,
    GpuReading,
    GpuState,
    NodeReading,
    NvmlState,
    Observation,
    RankReading,
)

# An agent that has just started may not have read its process lists yet; an empty list then means nothing.
_AGENT_WARM_UP_S = 15.0
# Board memory of one process that grew by more than this between two polls: it is loading.
_GROWTH_MIB = 64.0
# A working stretch is broken by this much time without a working sample.
_BREAK_S = 6.0


def take(
    observation: Observation,
    *,
    nodes: MutableMapping[str, NodeMemory],
    runs: MutableMapping[str, RunMemory],
    thresholds: Thresholds,
) -> None:
    """Take one poll's answer, or its failure, into memory. Taking the same answer twice changes nothing that matters."""
    node = nodes.setdefault(observation.node, NodeMemory(node=observation.node))
    reading = observation.reading
    if reading is None:
        node.failed = str(observation.failed)
        node.silent_since = node.silent_since if node.silent_since is not None else observation.at
        return
    node.failed = node.silent_since = None
    node.answered_at = observation.at
    node.nvml_state, node.nvml_detail = str(reading.nvml_state), reading.nvml_detail
    if reading.nvml_state is NvmlState.OK:
        node.nvml_since = None
    elif node.nvml_since is None:
        node.nvml_since = observation.at
    for rank in reading.ranks:
        if rank.run_id not in runs:
            at = observation.at
            runs[rank.run_id] = RunMemory(
                run_id=rank.run_id, user=rank.user, first_seen_at=at, started_at=at, since=at
            )
    concerned = heard(node, reading, runs)
    _take_said(observation.node, reading, concerned)
    _take_ranks(observation.node, observation.at, reading, concerned, thresholds)


def _take_said(node: str, reading: NodeReading, runs: MutableMapping[str, RunMemory]) -> None:
    """Progress, exits and events, about the runs that this node may speak for."""
    for said in reading.progress:
        if (run := runs.get(said.run_id)) is not None:
            take_progress(run, said)
    for left in reading.exits:
        gone = runs.get(left.run_id)
        for key in gone.keys_on.get(node, ()) if gone is not None else ():
            rank = gone.ranks[key] if gone is not None else None
            if rank is not None and rank.node == node and rank.pid == left.pid:
                rank.exit = left
                _leave(rank, left.at)
    for event in reading.events:
        for concerned in _concerned(event, runs):
            take_event(concerned, event)
            _take_lost_gpu(concerned, event)


def _concerned(event: EventReading, runs: MutableMapping[str, RunMemory]) -> Iterable[RunMemory]:
    if event.run_id is not None:
        return [runs[event.run_id]] if event.run_id in runs else []
    if event.gpu_uuid is None:
        return []
    return [
        run
        for run in runs.values()
        if any(event.gpu_uuid in rank.gpu_uuids for rank in run.ranks.values() if rank.present)
    ]


# Xids after which the board is gone for its process. Source: NVIDIA's Xid catalogue (79 bus, 119/120 GSP, 95 uncontained
# ECC, 48 double-bit ECC, 62, 64, 74 and 145 NVLink, 154 recovery action needed).
_FATAL_XIDS = frozenset(
    {46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 145, 149, 155, 156, 158}
)


def _take_lost_gpu(run: RunMemory, event: EventReading) -> None:
    if event.kind != "xid" or event.code not in _FATAL_XIDS or event.gpu_uuid is None:
        return
    for rank in run.ranks.values():
        if event.gpu_uuid in rank.gpu_uuids and rank.gpu_lost_at is None:
            rank.gpu_lost_at = event.at


def _take_ranks(
    node: str, at: float, reading: NodeReading, runs: MutableMapping[str, RunMemory], thresholds: Thresholds
) -> None:
    gpus = {gpu.uuid: gpu for gpu in reading.gpus}
    named: dict[str, set[str]] = {}
    for seen in reading.ranks:
        run = runs.get(seen.run_id)
        if run is None or not belongs(run, seen):
            continue
        key = key_of(run, node, seen, at)
        named.setdefault(run.run_id, set()).add(key)
        _take_run(run, seen, at)
        rank = _meet(run, key, node, seen, at)
        _take_counters(rank, seen, at, thresholds)
        if reading.nvml_state is NvmlState.OK:
            _take_gpu(run, rank, [gpus[uuid] for uuid in seen.gpu_uuids if uuid in gpus], at, thresholds)
        else:
            rank.activity = Activity.UNSEEN
    # Without a driver that answers, an empty process list says nothing about processes.
    if reading.nvml_state is not NvmlState.OK or at - (reading.agent_started_at or 0.0) < _AGENT_WARM_UP_S:
        return
    for run in runs.values():
        for key in run.keys_on.get(node, ()):
            rank = run.ranks[key]
            if rank.node == node and rank.present and key not in named.get(run.run_id, ()):
                _leave(rank, at)


def _leave(rank: RankMemory, at: float) -> None:
    if rank.present:
        rank.present, rank.gone_at = False, at
        rank.activity, rank.activity_since = Activity.GONE, at


def _take_run(run: RunMemory, seen: RankReading, at: float) -> None:
    run.seen_at = at
    run.run_name = seen.run_name or run.run_name
    if (
        seen.user and seen.user != run.user
    ):  # belongs() let it in: the first that is known, or the next owner of the id
        run.user = seen.user
    run.labels = seen.labels or run.labels
    run.world_size = seen.world_size or run.world_size
    if seen.attempt is not None:
        run.attempt = max(run.attempt or 0, seen.attempt)
        run.attempt_seen = run.attempt_seen if run.attempt_seen is not None else seen.attempt


def _meet(run: RunMemory, key: str, node: str, seen: RankReading, at: float) -> RankMemory:
    known = run.ranks.get(key)
    if known is None or known.pid != seen.pid or known.node != node:
        rank = RankMemory(
            key=key, rank=seen.rank, node=node, pid=seen.pid, first_seen_at=at, activity_since=at
        )
        if known is not None:
            _replace(run, known, rank, seen, at)
        run.ranks[key] = rank
        keys = run.keys_on.setdefault(node, [])
        if key not in keys:
            keys.append(key)
        known = rank
    if not known.present:  # a torn process list, or an exit that was none
        known.present, known.gone_at, known.exit = True, None, None
    known.seen_at = at
    known.started_at, known.local_rank = seen.started_at, seen.local_rank
    known.gpu_uuids, known.proc_state = seen.gpu_uuids, seen.proc_state
    if (seen.gpu_memory_mib or 0.0) > (known.gpu_memory_mib or 0.0) + _GROWTH_MIB:
        known.memory_grew_at = at
    known.gpu_memory_mib = seen.gpu_memory_mib
    return known


def _replace(run: RunMemory, old: RankMemory, new: RankMemory, seen: RankReading, at: float) -> None:
    """A rank lives in another process now: keep what is true of its board, and see whether the whole run started again.

    All processes gone before, or a higher attempt, says so at once. A single process may be a hot spare that takes over while
    steps go on; whether it was more shows when steps begin again further back (progress.py).
    """
    if old.node == new.node:
        new.working_w, new.working_mem_util = old.working_w, old.working_mem_util
        new.power_limit_w, new.learned_polls = old.power_limit_w, min(old.learned_polls, 20)
    run.replaced_at = at
    if not run.present():
        restart(run, at)
        run.ranks.clear()
        run.keys_on.clear()
    elif seen.attempt is not None and run.attempt_seen is not None and seen.attempt > run.attempt_seen:
        restart(run, at)
    run.attempt_seen = seen.attempt if seen.attempt is not None else run.attempt_seen


def _take_counters(rank: RankMemory, seen: RankReading, at: float, thresholds: Thresholds) -> None:
    before = rank.counters_at
    if before is not None and at > before:
        span = at - before
        rank.cpu_cores = _rate(rank.cpu_s, seen.cpu_s, span)
        read, wrote = (
            _rate(rank.read_bytes, seen.read_bytes, span),
            _rate(rank.write_bytes, seen.write_bytes, span),
        )
        rank.io_bytes_per_s = None if read is None and wrote is None else (read or 0.0) + (wrote or 0.0)
        if (rank.io_bytes_per_s or 0.0) >= thresholds.big_io_bytes_per_s:
            rank.big_io_at = at
        rank.wrote_big = rank.wrote_big or (wrote or 0.0) >= thresholds.big_io_bytes_per_s
        if (rank.cpu_cores or 0.0) >= thresholds.busy_cores:
            rank.busy_cpu_at = at
    rank.counters_at = at
    rank.cpu_s, rank.read_bytes, rank.write_bytes = seen.cpu_s, seen.read_bytes, seen.write_bytes


def _rate(old: float | None, new: float | None, span: float) -> float | None:
    # A counter that went back belongs to another agent life or another process: no rate.
    return None if old is None or new is None or new < old else (new - old) / span


def _take_gpu(
    run: RunMemory, rank: RankMemory, gpus: list[GpuReading], at: float, thresholds: Thresholds
) -> None:
    if not gpus:
        rank.activity = Activity.UNSEEN
        return
    first = gpus[0]
    rank.gpu_index, rank.gpu_model = first.index, first.model
    rank.temperature_c, rank.clock_event_reasons = first.temperature_c, first.clock_event_reasons
    follow_power_limit(rank, first.power_limit_w)
    if any(gpu.state is GpuState.LOST for gpu in gpus):
        rank.gpu_lost_at = rank.gpu_lost_at if rank.gpu_lost_at is not None else at
    if rank.gpu_lost_at is not None:
        _change(rank, Activity.LOST, rank.gpu_lost_at)
        return
    new = [sample for sample in first.samples if at - sample[0] > rank.sample_at]
    if not new:
        if at - rank.sample_at > thresholds.stale_after_s:
            rank.activity = Activity.UNSEEN
        return
    _, watts, util, mem_util, clock, _ = zip(*new, strict=True)
    rank.board_power_w, rank.util_pct, rank.mem_util_pct, rank.sm_clock_mhz = (
        mean(watts),
        mean(util),
        mean(mem_util),
        mean(clock),
    )
    worked_at = last_worked(new, at=at, after=rank.sample_at, rank=rank, thresholds=thresholds)
    rank.sample_at = at - new[-1][0]
    _judge_activity(rank, worked_at, new[-3:], thresholds)
    learn_working_level(rank, steps_go_on=_stepped(run, at), fed=run.fed)
    if len(gpus) > 1:
        _add_other_boards(rank, gpus[1:], at, thresholds)


def _stepped(run: RunMemory, at: float) -> bool:
    return (
        run.step_at is not None and bool(run.gaps_s) and at - run.step_at <= max(15.0, 1.5 * run.gaps_s[-1])
    )


def _judge_activity(rank: RankMemory, worked_at: float | None, newest: list, thresholds: Thresholds) -> None:  # type: ignore[type-arg]
    if worked_at is not None:
        if rank.working_since is None or (rank.worked_at is not None and worked_at - rank.worked_at > 60.0):
            rank.working_since = worked_at
        rank.worked_at = worked_at
    if worked_at is not None and rank.sample_at - worked_at < _BREAK_S:
        _change(rank, Activity.WORKING, worked_at)
        return
    rank.working_since = None
    kinds = [sample_activity(s[1], s[2], s[3], rank=rank, thresholds=thresholds) for s in newest]
    kind = max(set(kinds), key=kinds.count)
    if kind is Activity.WORKING:  # a lone sample of a stretch that has just ended
        kind = Activity.SPINNING if (rank.util_pct or 0.0) >= 50 else Activity.IDLE
    _change(rank, kind, rank.worked_at if rank.worked_at is not None else rank.sample_at)


def _change(rank: RankMemory, activity: Activity, since: float) -> None:
    if activity is not rank.activity:
        rank.activity, rank.activity_since = activity, since


def _add_other_boards(rank: RankMemory, others: list[GpuReading], at: float, thresholds: Thresholds) -> None:
    """A rank with several boards works while any of them does."""
    for gpu in others:
        if any(
            sample_activity(s[1], s[2], s[3], rank=rank, thresholds=thresholds) is Activity.WORKING
            for s in gpu.samples[-5:]
        ):
            rank.worked_at = at - gpu.samples[-1][0]
            _change(rank, Activity.WORKING, rank.worked_at)
            return
