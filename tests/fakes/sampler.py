"""A sampling process that exists only in memory: answers what it is told to, when it is told to, and refuses to die on request."""

import signal

from tests.fakes.clock import FakeClock
from watchtower.agent.nvml.process import Ended
from watchtower.agent.nvml.protocol import Board, Sweep

FINE = Board(uuid="GPU-a", index=0, power_w=900.0, utilization_pct=100.0)


class FakeSampler:
    """One sampling process; waiting for it moves the clock.

    Args:
        clock: moved by a wait that ends without an answer.
        pid: its name.
    """

    def __init__(self, clock: FakeClock, pid: int = 100) -> None:
        self._clock = clock
        self.pid = pid
        self.mode = "answer"  # answer | silent | ended | fail
        self.immortal = False
        self.asked: list[int] = []
        self.signals: list[signal.Signals] = []
        self.left = False
        self.closed = False

    def ask(self, number: int) -> None:
        self.asked.append(number)

    def answer(self, timeout_s: float) -> Sweep | Ended | None:
        if self.mode == "silent":
            self._clock.advance(timeout_s)
            return None
        if self.mode == "ended" or self.left:
            return Ended("it ended without an answer")
        return Sweep(sweep=self.asked[-1], driver_version="580.95.05", boards=(FINE,))

    def standing_in(self) -> tuple[int | None, str] | None:
        return 3, "nvmlDeviceGetFieldValues"

    def kernel_state(self) -> str | None:
        return "D" if self.mode == "silent" else "S"

    def hang_up(self) -> None:
        self.left = self.left or self.mode != "silent"

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        self.left = self.left or not self.immortal

    def has_left(self) -> bool:
        return self.left

    def close(self) -> None:
        self.closed = True
        self.hang_up()
