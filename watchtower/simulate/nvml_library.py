"""Builds the stand-in libnvidia-ml.so.1 and writes the state file that drives it. Says nothing about real hardware."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
STATE_VARIABLE = "FAKE_NVML_STATE"
_BUILD_LIMIT_S = 60
_MIB = 1024 * 1024
# The fake keeps a value in 1,024 bytes; a process is about 20.
_MAX_VALUE_BYTES = 1023


class NoCompilerError(Exception):
    """The library cannot be built here; the message says what is missing. Simulate one layer higher instead."""


class SimulatedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """What one simulated board reads. None makes that reading NOT_SUPPORTED.

    Args:
        procs: (pid, MiB of board memory) of each compute process.
        extra: more keys of fake_nvml.c for this GPU, without their `gN.`: `{"ret.*": 15}`, `{"delay.*": 60000}`.
    """

    uuid: str
    model: str = "NVIDIA B300 SXM6 AC"
    pci_bus_id: str = "00000000:1B:00.0"
    power_w: float | None = 180.0
    power_average_w: float | None = None  # None: the same as power_w
    power_limit_w: float | None = 1100.0
    max_power_limit_w: float | None = 1100.0
    utilization_pct: int | None = 0
    mem_utilization_pct: int | None = 0
    memory_total_mib: int | None = 275_040
    memory_used_mib: int | None = 4
    sm_clock_mhz: int | None = 1965
    temperature_c: int | None = 35
    clock_event_reasons: int | None = 0
    ecc_uncorrected: int | None = 0
    recovery_action: int | None = 0
    energy_mj: int | None = None  # None: integrated from power_w
    procs: Sequence[tuple[int, int]] = ()
    extra: Mapping[str, str | int] = {}


def build(into: Path) -> Path:
    """Compile the library into a folder, to be put into LD_LIBRARY_PATH of a process before it starts.

    Returns:
        The path of the library.

    Raises:
        NoCompilerError: no compiler, or it failed; the message carries what it said.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompilerError(
            "no C compiler: neither gcc nor cc is on PATH; install gcc to simulate NVML itself"
        )
    into.mkdir(parents=True, exist_ok=True)
    library = into / LIBRARY
    command = [compiler, "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}"]
    command += ["-o", str(library), str(SOURCE), "-lpthread"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCompilerError(f"{compiler} could not build {SOURCE.name}: {error}") from None
    if done.returncode:
        raise NoCompilerError(f"{compiler} could not build {SOURCE.name}: {done.stderr.strip()[-500:]}")
    return library


def environment(library: Path, state: Path) -> dict[str, str]:
    """What a process needs in its environment, from its start, to find the library and its state."""
    older = os.environ.get("LD_LIBRARY_PATH")
    search = f"{library.parent}{os.pathsep}{older}" if older else str(library.parent)
    return {"LD_LIBRARY_PATH": search, STATE_VARIABLE: str(state)}


def write_state(
    path: Path,
    gpus: Sequence[SimulatedGpu],
    *,
    driver: str = "580.95.05",
    init: int = 0,
    count: int | None = None,
    events: Sequence[tuple[int, int, int]] = (),
    extra: Mapping[str, str | int] | None = None,
) -> None:
    """Replace the state file; a reader sees the old or the new one, never half.

    Args:
        path: the file that FAKE_NVML_STATE names.
        gpus: in order of their index.
        driver: the driver version to claim.
        init: what nvmlInit returns: 0, or 9 (driver not loaded), 18 (version mismatch), 999, …
        count: how many GPUs the driver admits to; None: all. A smaller one unplugs the last.
        events: (type, gpu index, code) since the start, oldest first: never drop one, only append.
        extra: more keys of fake_nvml.c, such as `{"ret.nvmlEventSetCreate": 3}`.

    Raises:
        ValueError: a value that the file cannot carry.
    """
    keys: dict[str, str | int] = {
        "count": len(gpus) if count is None else count,
        "init": init,
        "driver": driver,
        **{f"ev{n}": f"{kind}:{gpu}:{code}" for n, (kind, gpu, code) in enumerate(events)},
        **(extra or {}),
    }
    for index, gpu in enumerate(gpus):
        keys |= {f"g{index}.{key}": value for key, value in _keys(gpu).items() if value is not None}
    for key, value in keys.items():
        if "\n" in f"{key}{value}" or len(str(value).encode()) > _MAX_VALUE_BYTES:
            raise ValueError(
                f"the state file cannot carry {key}: a line break, or more than {_MAX_VALUE_BYTES} bytes"
            )
    body = "".join(f"{key}={value}\n" for key, value in keys.items())
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(body)
    Path(temporary).replace(path)


def _keys(gpu: SimulatedGpu) -> dict[str, str | int | None]:
    average_w = gpu.power_w if gpu.power_average_w is None else gpu.power_average_w
    return {
        "uuid": gpu.uuid,
        "name": gpu.model,
        "pci": gpu.pci_bus_id,
        "power": _scaled(gpu.power_w, 1000),
        "power_average": _scaled(average_w, 1000),
        "limit": _scaled(gpu.power_limit_w, 1000),
        "limit_min": 0 if gpu.max_power_limit_w is not None else None,
        "limit_max": _scaled(gpu.max_power_limit_w, 1000),
        "util": gpu.utilization_pct,
        "mem_util": gpu.mem_utilization_pct,
        "mem_total": _scaled(gpu.memory_total_mib, _MIB),
        "mem_used": _scaled(gpu.memory_used_mib, _MIB),
        "sm_clock": gpu.sm_clock_mhz,
        "temp": gpu.temperature_c,
        "reasons": gpu.clock_event_reasons,
        "ecc": gpu.ecc_uncorrected,
        "recovery": gpu.recovery_action,
        "energy": gpu.energy_mj,
        "procs": ",".join(f"{pid}:{mib * _MIB}" for pid, mib in gpu.procs),
        **gpu.extra,
    }


def _scaled(value: float | None, factor: int) -> int | None:
    return None if value is None else round(value * factor)
