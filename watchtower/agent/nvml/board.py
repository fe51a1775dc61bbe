"""Reads one board: which calls, in which order, with which fallbacks, and what is too odd to believe. Keeps no history."""

from pathlib import Path
from typing import Any

import pynvml

from watchtower.agent.nvml.calls import IMPLAUSIBLE, Caller, Missing, reason_of
from watchtower.agent.nvml.protocol import NAMELESS, Board

# Source: field ids up to 198 and 230 mean the same in all driver branches; later ones were renumbered.
_FI_POWER_AVERAGE = 185  # mean of the last second
_FI_POWER_INSTANT = 186
_FI_RECOVERY_ACTION = 230
_UINT32 = 1  # NVML_VALUE_TYPE_UNSIGNED_INT; reading a wider member of the union gives junk in its upper half
_POWER_FIELDS = [_FI_POWER_AVERAGE, _FI_POWER_INSTANT]

# No board draws more today (the largest limit is 1,600 W); used where a board does not tell its own maximum.
_MAX_POWER_W = 3000.0
# A short excursion above the limit is real, a multiple of it is a broken reading.
_MAX_OVER_LIMIT = 2.0
_MAX_CLOCK_MHZ = 10_000
_COLDEST_C, _HOTTEST_C = -40, 200
_MIB = 1024 * 1024

_LIST_EVERY_SWEEPS = 5  # the process list is the dearest routine call: some 5 ms on real hardware
_LIST_AGAIN_SWEEPS = 2  # ... but sooner when the memory in use has moved by
_MEMORY_MOVED_MIB = 16
SLOW_EVERY_SWEEPS = 10

# Source: nvmlClocksEventReasons in nvml.h; the words are nvidia-smi's.
_EVENT_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


def event_words(bits: int) -> tuple[str, ...]:
    """The clock event reasons in a bit mask, lowest bit first; a bit that has no word yet is shown in hexadecimal."""
    return tuple(_EVENT_REASONS.get(1 << n, hex(1 << n)) for n in range(bits.bit_length()) if bits >> n & 1)


class _LostError(Exception):
    """The driver says that this GPU is gone; the other calls about it are not worth making."""


class BoardReader:
    """One board over the life of the sampling process.

    Args:
        caller: makes the calls.
        index: NVML's index when it was found.
        handle: NVML's handle, or Missing where even that failed.
        proc_root: where the processes of this machine are listed; a pid that is not there is not passed on.
        pid_max: the largest process id of this machine.
    """

    def __init__(self, caller: Caller, index: int, handle: object, *, proc_root: Path, pid_max: int) -> None:
        self._caller = caller
        self.index = index
        self.handle = handle
        self._proc_root = proc_root
        self._pid_max = pid_max
        self._missing: dict[str, str] = {}
        self._listed_at = -_LIST_EVERY_SWEEPS
        self._listed_memory_mib: float | None = None
        self.vanished = False
        # Without a UUID the agent goes by the index, until it learns better.
        uuid = self._text("nvmlDeviceGetUUID")
        self.nameless = not uuid
        self.uuid = uuid or f"{NAMELESS}{index}"
        self.model = self._text("nvmlDeviceGetName") or ""
        pci = self._call("nvmlDeviceGetPciInfo")
        self.pci_bus_id = None if isinstance(pci, Missing) else _decoded(pci.busId)
        self.max_power_w = self._learn_max_power_w()

    def read(self) -> Board:
        """Read everything that is due in this sweep.

        Raises:
            DriverGoneError: no board can be read.
        """
        self._missing = {}
        found: dict[str, Any] = {}
        state, detail = "ok", None
        if isinstance(self.handle, Missing):
            self._missing["handle"] = self.handle.reason
        if self.vanished:
            state, detail = "lost", "no longer listed by the driver"
        else:
            try:
                self._read_into(found)
            except _LostError as lost:
                state, detail = "lost", str(lost)
        if state == "ok" and found.get("power_w") is None and found.get("utilization_pct") is None:
            state = "unreadable"
        if detail is None and self._missing:
            detail = ", ".join(f"{name}: {reason}" for name, reason in self._missing.items())
        return Board(
            uuid=self.uuid,
            index=self.index,
            pci_bus_id=self.pci_bus_id,
            model=self.model,
            state=state,
            detail=detail,
            missing=self._missing,
            **found,
        )

    def _read_into(self, found: dict[str, Any]) -> None:
        found["power_w"], found["power_from"] = self._power()
        found["utilization_pct"], found["mem_utilization_pct"] = self._utilization()
        found["memory_used_mib"], found["memory_total_mib"] = self._memory()
        found["sm_clock_mhz"] = self._within(
            "sm_clock", self._call("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM), 0, _MAX_CLOCK_MHZ
        )
        limit_mw = self._call("nvmlDeviceGetEnforcedPowerLimit")
        found["power_limit_w"] = self._within("power_limit", _scaled(limit_mw, 1000), 1, _MAX_POWER_W)
        found["temperature_c"] = self._temperature()
        found["clock_event_reasons"] = self._clock_events()
        if self._listing_is_due(found["memory_used_mib"]):
            found["processes"] = self._processes(found["memory_total_mib"])
            self._listed_at = self._caller.sweep
            self._listed_memory_mib = found["memory_used_mib"]
        if self._caller.sweep % SLOW_EVERY_SWEEPS == 1:
            ecc = self._call("nvmlDeviceGetTotalEccErrors", 1, 0)  # uncorrected, since the driver was loaded
            found["ecc_uncorrected"] = None if isinstance(ecc, Missing) else ecc
            found["recovery_action"] = self._recovery_action()

    # -- one call ----------------------------------------------------------------------------------------------------

    def _call(self, name: str, *args: object) -> Any:
        if isinstance(self.handle, Missing):
            answer: Any = self.handle
        else:
            answer = self._caller.call(self.index, name, self.handle, *args)
        return answer

    def _ask(self, name: str, *args: object) -> Any:
        """As _call, but a lost GPU ends the reading of this board."""
        answer = self._call(name, *args)
        if isinstance(answer, Missing) and answer.reason == "gpu_lost":
            raise _LostError(f"{name} says that the GPU is lost")
        return answer

    def _text(self, name: str) -> str | None:
        answer = self._call(name)
        return None if isinstance(answer, Missing) else _decoded(answer)

    def _within(self, reading: str, value: Any, low: float, high: float) -> float | None:
        """The value, or None with the reason noted: an error, or a number that cannot be."""
        if isinstance(value, Missing):
            self._missing[reading] = value.reason
            return None
        if not low <= value <= high:
            self._missing[reading] = IMPLAUSIBLE
            return None
        return float(value)

    # -- readings ----------------------------------------------------------------------------------------------------

    def _power(self) -> tuple[float | None, str | None]:
        """The mean of the last second where the board has it: once a second, a momentary value would miss short bursts."""
        fields = self._ask("nvmlDeviceGetFieldValues", _POWER_FIELDS)
        if isinstance(fields, Missing):
            fields = []
        highest_w = self.max_power_w * _MAX_OVER_LIMIT
        reason = "not_supported"
        for field, source in zip(fields, ("average", "instant"), strict=False):
            milliwatts = _uint32(field)
            if not isinstance(milliwatts, Missing):
                if 0 < milliwatts <= highest_w * 1000:
                    return milliwatts / 1000, source
                reason = IMPLAUSIBLE
            elif milliwatts.reason == "gpu_lost":
                raise _LostError("the power reading says that the GPU is lost")
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        # A board that answers draws something: 0 W is a broken reading.
        power_w = self._within("power", _scaled(milliwatts, 1000), 0.001, highest_w)
        if power_w is None and reason == IMPLAUSIBLE:
            self._missing["power"] = IMPLAUSIBLE
        return power_w, None if power_w is None else "usage"

    def _utilization(self) -> tuple[float | None, float | None]:
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        if isinstance(rates, Missing):
            return self._within("utilization", rates, 0, 0), None
        return (
            self._within("utilization", rates.gpu, 0, 100),
            self._within("mem_utilization", rates.memory, 0, 100),
        )

    def _memory(self) -> tuple[float | None, float | None]:
        memory = self._ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
        if isinstance(memory, Missing):
            # The two share a name in the binding, so what is known of the one must not keep us from the other.
            memory = self._ask("nvmlDeviceGetMemoryInfo")
        if isinstance(memory, Missing):
            return self._within("memory", memory, 0, 0), None
        total_mib = memory.total / _MIB
        return self._within("memory", memory.used / _MIB, 0, total_mib), total_mib

    def _temperature(self) -> float | None:
        celsius = self._ask("nvmlDeviceGetTemperatureV", pynvml.NVML_TEMPERATURE_GPU)
        if isinstance(celsius, Missing):
            celsius = self._ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)
        return self._within("temperature", celsius, _COLDEST_C, _HOTTEST_C)

    def _clock_events(self) -> tuple[str, ...]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if isinstance(bits, Missing):
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        if isinstance(bits, Missing):
            self._missing["clock_event_reasons"] = bits.reason
            return ()
        return event_words(bits)

    def _recovery_action(self) -> int | None:
        fields = self._ask("nvmlDeviceGetFieldValues", [_FI_RECOVERY_ACTION])
        action = fields if isinstance(fields, Missing) else _uint32(fields[0])
        return None if isinstance(action, Missing) else action

    def _learn_max_power_w(self) -> float:
        bounds = self._call("nvmlDeviceGetPowerManagementLimitConstraints")
        highest_mw = 0 if isinstance(bounds, Missing) else bounds[1]
        return highest_mw / 1000 if 0 < highest_mw <= _MAX_POWER_W * 1000 else _MAX_POWER_W / _MAX_OVER_LIMIT

    # -- processes ---------------------------------------------------------------------------------------------------

    def _listing_is_due(self, memory_mib: float | None) -> bool:
        since = self._caller.sweep - self._listed_at
        if since >= _LIST_EVERY_SWEEPS:
            return True
        before = self._listed_memory_mib
        moved = memory_mib is not None and before is not None and abs(memory_mib - before) > _MEMORY_MOVED_MIB
        return moved and since >= _LIST_AGAIN_SWEEPS

    def _processes(self, total_mib: float | None) -> tuple[tuple[int, float | None], ...] | None:
        listed = self._believable(self._ask("nvmlDeviceGetComputeRunningProcesses_v3"))
        if isinstance(listed, Missing) and listed.reason in (IMPLAUSIBLE, "function_not_found"):
            # Some 535 drivers fill the newer list with a layout of their own: every other pid is then nonsense.
            older = self._believable(self._ask("nvmlDeviceGetComputeRunningProcesses_v2"))
            listed = listed if isinstance(older, Missing) else older
        if isinstance(listed, Missing):
            self._missing["processes"] = listed.reason
            return None
        served = self._believable(self._ask("nvmlDeviceGetMPSComputeRunningProcesses"))
        entries = {p.pid: p for p in [*listed, *([] if isinstance(served, Missing) else served)]}
        here = [p for p in entries.values() if (self._proc_root / str(p.pid)).exists()]
        if entries and not here:
            # Process ids are the host's: in a container without the host's pid namespace they mean nothing.
            self._missing["processes"] = "pids_unresolved"
            return None
        return tuple((p.pid, _process_mib(p.usedGpuMemory, total_mib)) for p in here)

    def _believable(self, listed: Any) -> Any:
        if isinstance(listed, Missing) or all(1 <= p.pid <= self._pid_max for p in listed):
            return listed
        return Missing(IMPLAUSIBLE)


def _process_mib(used_bytes: int | None, total_mib: float | None) -> float | None:
    if used_bytes is None:
        return None
    used_mib = used_bytes / _MIB
    return used_mib if total_mib is None or used_mib <= total_mib else None


def _uint32(field: Any) -> Any:
    if field.nvmlReturn:
        return Missing(reason_of(field.nvmlReturn))
    return field.value.uiVal if field.valueType == _UINT32 else Missing(IMPLAUSIBLE)


def _scaled(value: Any, divisor: int) -> Any:
    return value if isinstance(value, Missing) else value / divisor


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")
