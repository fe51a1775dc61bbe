"""torchtitan's metrics line and MaxText's, which carry a rate per device and no total. Reads no validation lines."""

import re

from watchtower.trainlog.hf import number
from watchtower.trainlog.marks import Mark

_TITAN = re.compile(
    r"(?<!validate )\bstep:\s{0,8}(\d{1,10})\s{1,8}loss:\s{0,8}(-?[\d.naif]{1,16})\s.{0,160}?\btps: ([\d,]{1,16})\s"
)
_MAXTEXT = re.compile(
    r"\bcompleted step: (\d{1,10}), seconds: [\d.]{1,16}, .{0,80}?Tokens/s/device: ([\d.]{1,16}),"
)


def read(text: str) -> Mark | None:
    """One metrics line; ranks that do not hold the loss print -1 under pipeline parallelism and are not believed."""
    if found := _TITAN.search(text):
        if found.group(2).rstrip("0").rstrip(".") == "-1":
            return None
        return _mark(found.group(1), number(found.group(3).replace(",", "")))
    if found := _MAXTEXT.search(text):
        return _mark(found.group(1), number(found.group(2)))
    return None


def _mark(step: str, rate: float | None) -> Mark:
    if rate is None:
        return Mark(step=int(step), phase="train")
    return Mark(step=int(step), throughput=rate, unit="tokens/s", scope="gpu", phase="train")
