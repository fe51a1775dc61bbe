"""nanoGPT's `iter N:` lines, with the total and the tokens per step that it prints at start. `step N:` there is an evaluation."""

import re

from watchtower.trainlog.marks import Mark

_ITER = re.compile(r"^iter (\d{1,10}): loss [\d.naif]{1,16}, time (\d{1,12}\.\d{1,6})ms")
_EVAL = re.compile(r"^step \d{1,10}: train loss [\d.naif]{1,16}, val loss ")
_TOTAL = re.compile(r"^\s{0,8}max_iters = (\d{1,10})(?:\s|$)")
_TOKENS = re.compile(r"^tokens per iteration will be: ([\d,]{1,16})(?:\s|$)")


class NanoGpt:
    """Reads nanoGPT and scripts that descend from it."""

    def __init__(self) -> None:
        self._total: int | None = None
        self._tokens: int | None = None

    def read(self, text: str) -> Mark | None:
        """One line; tokens per second where the tokens per step are known, else steps per second."""
        if found := _ITER.search(text):
            seconds = float(found.group(2)) / 1000
            step = int(found.group(1))
            if seconds <= 0:
                return Mark(step=step, total=self._total, phase="train")
            return Mark(
                step=step,
                total=self._total,
                throughput=round((self._tokens or 1) / seconds, 6),
                unit="tokens/s" if self._tokens else "steps/s",
                scope="run",
                phase="train",
            )
        if _EVAL.search(text):
            return Mark(phase="eval")
        if found := _TOTAL.search(text):
            self._total = int(found.group(1))
        elif found := _TOKENS.search(text):
            self._tokens = int(found.group(1).replace(",", "")) or None
        return None
