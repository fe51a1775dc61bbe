"""Runs, incidents and verdicts as the judge would show them, written once; every field can be said otherwise."""

from typing import Any

from watchtower.model import Activity, RankView, RunState, RunView, Suspect, Throughput

NOW = 1_764_540_000.0


def rank_view(rank: int = 0, **fields: Any) -> RankView:
    known: dict[str, Any] = {
        "rank": rank,
        "node": "gpu-a" if rank < 8 else "gpu-b",
        "gpu_index": rank % 8,
        "local_rank": rank % 8,
        "pid": 4000 + rank,
        "activity": Activity.WORKING,
        "since": NOW - 4000,
        "board_power_w": 912.0,
        "working_power_w": 920.0,
        "utilization_pct": 99.0,
        "temperature_c": 58.0,
        "sm_clock_mhz": 1785.0,
    }
    return RankView(**(known | fields))


def run_view(**fields: Any) -> RunView:
    known: dict[str, Any] = {
        "run_id": "slurm-4411",
        "run_name": "qwen3-32b-sft",
        "user": "jlee",
        "labels": {},
        "state": RunState.PROGRESSING,
        "since": NOW - 7200,
        "reason": "a step every 9.8 s",
        "severity": None,
        "suspects": (),
        "evidence": (),
        "first_seen_at": NOW - 7300,
        "updated_at": NOW,
        "attempt": 0,
        "restarts": 0,
        "world_size": 16,
        "nodes": ("gpu-a", "gpu-b"),
        "nodes_unseen": (),
        "gpus": 16,
        "gpu_model": "NVIDIA B300 SXM6 AC",
        "step": 3850,
        "total_steps": 3857,
        "step_at": NOW - 4,
        "step_time_s": 9.8,
        "throughput": Throughput(11810.0, "tokens/s", "run"),
        "throughput_floor": None,
        "phase": None,
        "power_share": 0.98,
        "power_history": tuple(0.98 for _ in range(20)),
        "activity": {"working": 16},
        "ranks": tuple(rank_view(rank) for rank in range(16)),
        "last_checkpoint_at": NOW - 1500,
        "last_checkpoint_step": 3800,
        "collective_timeout_s": 1800.0,
        "progress_source": True,
    }
    return RunView(**(known | fields))


def deadlocked_view(**fields: Any) -> RunView:
    """The founding incident: rank 3 waits in the barrier, all spin."""
    known: dict[str, Any] = {
        "state": RunState.DEADLOCKED,
        "since": NOW - 94,
        "reason": "16 of 16 ranks at 100 % utilization, 23 % of their own working power, no step for 94 s",
        "severity": "critical",
        "suspects": (Suspect(3, "gpu-a", 3, "stopped working 4 s before the others"),),
        "power_share": 0.23,
        "power_history": (*(0.98 for _ in range(20)), 0.23, 0.23, None, 0.23),
        "activity": {"spinning": 16},
        "ranks": tuple(
            rank_view(
                rank, activity=Activity.SPINNING, board_power_w=212.0, utilization_pct=100.0, since=NOW - 94
            )
            for rank in range(16)
        ),
    }
    return run_view(**(known | fields))
