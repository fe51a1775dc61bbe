"""Megatron-LM's iteration line, old and new, and NeMo's, which grew out of it. Knows nothing of Megatron's checkpoints (phases.py)."""

import re

from watchtower.trainlog.marks import Mark

_ITERATION = re.compile(r"\biteration\s{1,12}(\d{1,10})\s{0,4}/\s{0,12}(\d{1,10}) \|(.{0,3000})")
_ELAPSED = re.compile(r"elapsed time per iteration \((ms|s)\): (\d{1,12}(?:\.\d{1,6})?) \|")
_BATCH = re.compile(r"global batch size:\s{1,12}(\d{1,9}) \|")
_NEMO = re.compile(
    r"\bTraining epoch \d{1,6}, iteration (\d{1,10})/(\d{1,10}) \|.{0,400}?\bglobal_step: (\d{1,10}) \|(.{0,400})"
)
_NEMO_TIMING = re.compile(r"train_step_timing in s: (\d{1,8}(?:\.\d{1,6})?)")


def read(text: str) -> Mark | None:
    """One iteration line; the rate is samples per second of the whole run where the batch size is printed, else steps."""
    if "iteration" not in text:
        return None
    if found := _NEMO.search(text):
        # NeMo counts from zero and prints the last number, not the count, on both sides.
        timing = _NEMO_TIMING.search(found.group(4))
        return _mark(
            int(found.group(3)) + 1, int(found.group(2)) + 1, float(timing.group(1)) if timing else 0.0, None
        )
    if found := _ITERATION.search(text):
        step, total, rest = int(found.group(1)), int(found.group(2)), found.group(3)
        if step > total or not (elapsed := _ELAPSED.search(rest)):
            return None
        seconds = float(elapsed.group(2)) / (1000 if elapsed.group(1) == "ms" else 1)
        batch = _BATCH.search(rest)
        return _mark(step, total, seconds, int(batch.group(1)) if batch else None)
    return None


def _mark(step: int, total: int, seconds: float, batch: int | None) -> Mark:
    if seconds <= 0:
        return Mark(step=step, total=total, phase="train")
    return Mark(
        step=step,
        total=total,
        throughput=round((batch or 1) / seconds, 6),
        unit="samples/s" if batch else "steps/s",
        scope="run",
        phase="train",
    )
