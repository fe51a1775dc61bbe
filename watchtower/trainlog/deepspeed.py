"""DeepSpeed's step and throughput lines, and DeepSpeed-Chat's. Reads no launcher lines (failures.py)."""

import re

from watchtower.trainlog.hf import number
from watchtower.trainlog.marks import Mark

_STEP = re.compile(r"\[Rank \d{1,6}\] step=(\d{1,10}), skipped=\d{1,10}, lr=")
_RATE = re.compile(
    r"\bglobal_step=(\d{1,10}), RunningAvgSamplesPerSec=[\d.einf-]{1,32}, CurrSamplesPerSec=([\d.]{1,24})[\de+-]{0,5},"
)
_CHAT = re.compile(r"^epoch: (\d{1,6})\|step: (\d{1,10})\|ppo_ep: ")
_CHAT_RATE = re.compile(r"\|CurSamplesPerSec=([\d.]{1,24}) \|")
_CHAT_TOTAL = re.compile(
    r"Beginning of Epoch \d{1,6}/(\d{1,6}), Total (?:Micro|Generation) Batches (\d{1,10})(?!\d)"
)


class DeepSpeed:
    """Follows the engine's own counter; in RLHF, where two engines print one each, the trainer's `step:` instead."""

    def __init__(self) -> None:
        self._total: int | None = None
        self._chat = False

    def read(self, text: str) -> Mark | None:
        """One line of a DeepSpeed log, or None when it says no step and no rate."""
        if found := _CHAT_TOTAL.search(text):
            self._total = int(found.group(1)) * int(found.group(2))
            return None
        if found := _CHAT.search(text):
            self._chat = True
            if found.group(1) != "0":  # this counter begins again every epoch
                return Mark(phase="train")
            return Mark(step=int(found.group(2)), total=self._total, phase="train")
        if self._chat:
            found = _CHAT_RATE.search(text)
            return self._rated(None, number(found.group(1))) if found else None
        if found := _RATE.search(text):
            return self._rated(int(found.group(1)), number(found.group(2)))
        if found := _STEP.search(text):
            return Mark(step=int(found.group(1)), total=self._total, phase="train")
        return None

    def _rated(self, step: int | None, rate: float | None) -> Mark:
        total = self._total if step is not None else None
        if rate is None:
            return Mark(step=step, total=total, phase="train")
        return Mark(step=step, total=total, throughput=rate, unit="samples/s", scope="run", phase="train")
