"""Real telemetry of healthy and of finished work, where it lies beside the checkout, turned into recordings: none of it may page as a hang."""

import csv
from collections import defaultdict
from pathlib import Path

import pytest

from watchtower.judge.settings import JudgeSettings
from watchtower.judge.step import Judge
from watchtower.model import (
    GpuReading,
    GpuState,
    NodeReading,
    NvmlState,
    Observation,
    RankReading,
    RankSource,
    Sample,
)

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
POLL_S = 5.0

HEALTHY = [
    ("T01_h100x8_nanogpt_full_run", 700.0, 0.0, 255.0),
    ("T03_h100x8_nanogpt_steady", 700.0, 0.0, 300.0),
    ("T04_h100x8_eval_pause_native", 700.0, 0.0, 45.0),
    ("T11_a100pcie_duty50_200s", 250.0, 0.0, 200.0),
    ("T12_v100sxm2_duty50_200s", 300.0, 0.0, 200.0),
    ("T13_rtx3090_duty50_210s", 420.0, 0.0, 210.0),
]


def _critical(path: Path, limit_w: float, start: float, end: float) -> list[str]:
    """The critical notices that the judge gives on a trace of one node without any step feed."""
    boards: dict[int, list[tuple[float, float | None, float | None]]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            t = float(row["t_seconds"])
            if start <= t <= end:
                util = float(row["util_pct"]) if row["util_pct"] else None
                boards[int(row["gpu"])].append((t, float(row["power_w"]) if row["power_w"] else None, util))
    judge, now, out = Judge(JudgeSettings()), start, []
    while now < end:
        now += POLL_S
        gpus, ranks = [], []
        for index, series in sorted(boards.items()):
            samples: list[Sample] = [
                (now - t, w, u, None, None, None) for t, w, u in series if now - POLL_S < t <= now
            ]
            uuid = f"GPU-{index}"
            gpus.append(GpuReading(uuid, index, "", GpuState.OK, limit_w, None, None, (), samples))
            ranks.append(
                RankReading(
                    "r",
                    None,
                    index,
                    index,
                    len(boards),
                    RankSource.ENVIRON,
                    0,
                    None,
                    {},
                    100 + index,
                    0.0,
                    (uuid,),
                    None,
                    "R",
                    None,
                    None,
                    None,
                )
            )
        reading = NodeReading("0", -1e6, None, NvmlState.OK, None, tuple(gpus), tuple(ranks), (), (), ())
        step = judge.step([Observation(at=now, node="n", reading=reading)], now)
        out += [str(n.state) for n in step.notices if n.severity == "critical"]
    return out


@pytest.mark.parametrize(("name", "limit_w", "start", "end"), HEALTHY, ids=[row[0] for row in HEALTHY])
def test_real_healthy_telemetry_pages_nobody(name: str, limit_w: float, start: float, end: float) -> None:
    path = TRACES / "telemetry" / f"{name}.csv"
    if not path.is_file():
        pytest.skip("real telemetry (../shared/traces) is not here")
    assert _critical(path, limit_w, start, end) == []


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("S01_h100x8_nccl_deadlock_all_spin", "deadlocked"),
        ("S02_h100x8_one_rank_dead_others_spin", "deadlocked"),
        ("S03_h100x8_hang_zero_util_ctx_held", "hung"),
    ],
)
def test_levels_measured_in_real_hangs_are_named(name: str, state: str) -> None:
    path = TRACES / "semisynthetic" / f"{name}.csv"
    if not path.is_file():
        pytest.skip("real telemetry (../shared/traces) is not here")
    assert _critical(path, 700.0, 0.0, 750.0) == [state]
