"""What one beat() costs a training step, as a ratio to an empty function call and in microseconds; writes into a temporary folder."""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

from watchtower.train import beat

BAR_US = 20.0


def nothing(
    step: int, total_steps: int | None = None, *, tokens: int | None = None, loss: float | None = None
) -> None:
    """The empty call that beat() is compared with."""


def cost_us(call: Callable[..., None], calls: int) -> float:
    """Mean microseconds per call."""
    began = time.perf_counter()
    for step in range(calls):
        call(step, 1_000_000, tokens=step * 4096, loss=2.5)
    return (time.perf_counter() - began) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WATCHTOWER_DIR"] = folder
        empty = statistics.median(cost_us(nothing, options.calls) for _ in range(options.rounds))
        full = statistics.median(cost_us(beat, options.calls) for _ in range(options.rounds))
        began = time.perf_counter()
        slowest = 0.0
        while time.perf_counter() - began < 2.5:  # two writes happen in here
            one = time.perf_counter()
            beat(1, 2)
            slowest = max(slowest, time.perf_counter() - one)
    print(f"ratio {full / empty:.1f} (beat {full:.2f} us, empty call {empty:.3f} us, bar {BAR_US:.0f} us)")
    print(f"slowest single beat in 2.5 s, writer at work: {slowest * 1e6:.0f} us")
    if full > BAR_US:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
