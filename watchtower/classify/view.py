"""Shows a run's memory as people see it: one frozen view for status, pages and the API. Judges nothing."""

from collections import Counter
from collections.abc import Mapping

from watchtower.classify.memory import NodeMemory, RankMemory, RunMemory
from watchtower.classify.pace import parse_floor, rule_for
from watchtower.classify.progress import pace_s
from watchtower.classify.settings import RunRule, Thresholds
from watchtower.classify.stall import power_share
from watchtower.model import Activity, RankView, RunView, Verdict

_HISTORY_EVERY_S = 10.0
_HISTORY_KEEP = 60


def view(
    run: RunMemory,
    verdict: Verdict,
    nodes: Mapping[str, NodeMemory],
    *,
    now: float,
    thresholds: Thresholds,
    rules: tuple[RunRule, ...],
) -> RunView:
    """The run as it is now; also moves its power history on, once per 10 s."""
    ranks = sorted(run.ranks.values(), key=lambda rank: (rank.rank is None, rank.rank, rank.node, rank.pid))
    unseen = {
        name
        for name in {rank.node for rank in ranks if rank.present}
        if name not in nodes or now - (nodes[name].answered_at or 0.0) > thresholds.stale_after_s
    }
    share = power_share([rank for rank in ranks if rank.present and rank.node not in unseen])
    if now - run.power_history_at >= _HISTORY_EVERY_S:
        run.power_history_at = now
        run.power_history.append(None if share is None else round(share, 3))
        del run.power_history[:-_HISTORY_KEEP]
    shown = tuple(
        _rank(rank, Activity.UNSEEN if rank.present and rank.node in unseen else rank.activity)
        for rank in ranks
    )
    rule = rule_for(run, rules)
    return RunView(
        run_id=run.run_id,
        run_name=run.run_name,
        user=run.user,
        labels=run.labels,
        state=verdict.state,
        since=verdict.since,
        reason=verdict.reason,
        severity=verdict.severity,
        suspects=verdict.suspects,
        evidence=verdict.evidence,
        first_seen_at=run.first_seen_at,
        updated_at=now,
        attempt=run.attempt,
        restarts=run.restarts,
        world_size=run.world_size if rule is None or rule.expected_ranks is None else rule.expected_ranks,
        nodes=tuple(sorted({rank.node for rank in ranks})),
        nodes_unseen=tuple(sorted(unseen)),
        gpus=sum(max(1, len(rank.gpu_uuids)) for rank in ranks),
        gpu_model=next((rank.gpu_model for rank in ranks if rank.gpu_model), None),
        step=run.step,
        total_steps=run.total_steps,
        step_at=run.step_at,
        step_time_s=pace_s(run),
        throughput=run.throughput,
        throughput_floor=parse_floor(rule.throughput_floor)
        if rule is not None and rule.throughput_floor
        else None,
        phase=run.phase,
        power_share=share,
        power_history=tuple(run.power_history),
        activity=dict(Counter(str(rank.activity) for rank in shown)),
        ranks=shown,
        last_checkpoint_at=run.last_checkpoint_at,
        last_checkpoint_step=run.last_checkpoint_step,
        collective_timeout_s=rule.collective_timeout_s
        if rule is not None and rule.collective_timeout_s is not None
        else run.collective_timeout_s,
        progress_source=run.fed,
    )


def _rank(rank: RankMemory, activity: Activity) -> RankView:
    return RankView(
        rank=rank.rank,
        node=rank.node,
        gpu_index=rank.gpu_index,
        local_rank=rank.local_rank,
        pid=rank.pid,
        activity=activity,
        since=rank.activity_since or None,
        board_power_w=rank.board_power_w,
        working_power_w=rank.working_w,
        utilization_pct=rank.util_pct,
        temperature_c=rank.temperature_c,
        sm_clock_mhz=rank.sm_clock_mhz,
    )
