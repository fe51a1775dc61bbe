"""Makes single NVML calls, each with a breadcrumb before it and a reason when it fails. Interprets no value it gets."""

import os
from collections.abc import Callable
from typing import Any

import pynvml

from watchtower.agent.nvml.protocol import BREADCRUMB_BYTES

# Source: nvmlReturn_t in nvml.h.
REASONS = {
    1: "uninitialized",
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "not_found",
    7: "insufficient_size",
    8: "insufficient_power",
    9: "driver_not_loaded",
    10: "timeout",
    11: "irq_issue",
    12: "library_not_found",
    13: "function_not_found",
    14: "corrupted_inforom",
    15: "gpu_lost",
    16: "reset_required",
    17: "operating_system",
    18: "version_mismatch",
    25: "argument_version_mismatch",
    28: "gpu_lost",
    999: "unknown_error",
}
IMPLAUSIBLE = "implausible"
# These speak of the driver, not of one GPU: nothing can be read until the process starts anew.
NODE_REASONS = frozenset({"uninitialized", "driver_not_loaded", "version_mismatch"})
# Not worth asking each second, yet not for ever: switching MIG on or off changes what is supported.
_RARE = frozenset({"not_supported", "function_not_found"})
_ASK_RARE_AGAIN_SWEEPS = 60


class Missing:
    """In place of a value: why there is none."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class DriverGoneError(Exception):
    """NVML as a whole does not work any more; the process leaves and says so."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def reason_of(code: int) -> str:
    """The word for an NVML return code."""
    return REASONS.get(code, f"error_{code}")


class Caller:
    """Calls NVML functions by name, on behalf of a board or of the node.

    Args:
        breadcrumb_fd: an open file to write "what I am about to call" to, or None.
    """

    def __init__(self, breadcrumb_fd: int | None) -> None:
        self._breadcrumb_fd = breadcrumb_fd
        # Keyed by the number of arguments too: the binding has two versions of a call under one name.
        self._rare: dict[tuple[int | None, str, int], tuple[int, str]] = {}
        self.sweep = 0

    def call(self, gpu: int | None, name: str, *args: object) -> Any:
        """Call one function.

        Args:
            gpu: the board's index, for the breadcrumb and for what is known of it; None: not about a board.
            name: the binding's function.

        Returns:
            What the binding returns, or Missing.

        Raises:
            DriverGoneError: the error is about the driver as a whole.
        """
        key = (gpu, name, len(args))
        known = self._rare.get(key)
        if known is not None and self.sweep < known[0]:
            return Missing(known[1])
        function: Callable[..., Any] | None = getattr(pynvml, name, None)
        if function is None:
            return Missing("function_not_found")
        self._leave_breadcrumb(gpu, name)
        try:
            return function(*args)
        except pynvml.NVMLError as error:
            reason = reason_of(error.value)
        except Exception:  # noqa: BLE001 - the binding also raises UnicodeDecodeError and ctypes errors; one reading is lost
            reason = IMPLAUSIBLE
        if reason in NODE_REASONS:
            raise DriverGoneError(reason, f"{name} says {reason}")
        if reason in _RARE:
            self._rare[key] = (self.sweep + _ASK_RARE_AGAIN_SWEEPS, reason)
        return Missing(reason)

    def _leave_breadcrumb(self, gpu: int | None, name: str) -> None:
        if self._breadcrumb_fd is not None:
            text = f"{'-' if gpu is None else gpu} {name}"
            os.pwrite(self._breadcrumb_fd, text.ljust(BREADCRUMB_BYTES).encode()[:BREADCRUMB_BYTES], 0)
