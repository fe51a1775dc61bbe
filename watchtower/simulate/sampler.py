"""Stands in for the agent's NVML child where no C compiler can build the simulated library: the same state file, one layer higher. Calls no NVML.

Given to an agent as `--sampler-command "python -m watchtower.simulate.sampler"`, with FAKE_NVML_STATE naming the state file. It
speaks the pipe protocol that watchtower/agent/nvml/protocol.py describes: one JSON object a line, a sweep for each question.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from watchtower.simulate.nvml_library import STATE_VARIABLE

_MIB = 1024 * 1024
# The protocol's name of a reading -> the state file's key and what divides it.
_READINGS: dict[str, tuple[str, Callable[[str], float]]] = {
    "power_w": ("power", lambda text: int(text) / 1000),
    "power_limit_w": ("limit", lambda text: int(text) / 1000),
    "utilization_pct": ("util", float),
    "mem_utilization_pct": ("mem_util", float),
    "sm_clock_mhz": ("sm_clock", float),
    "memory_used_mib": ("mem_used", lambda text: int(text) / _MIB),
    "memory_total_mib": ("mem_total", lambda text: int(text) / _MIB),
    "temperature_c": ("temp", float),
}


def sweep(number: int, state: Path) -> dict[str, object]:
    """Answer one question from the state file.

    Returns:
        The boards of the file, a reading that it lacks as null; or `failed` where there is no such file.
    """
    try:
        text = state.read_text(encoding="utf-8")
    except OSError as error:
        detail = f"cannot read the state file {state}: {error.strerror}"
        return {"sweep": number, "failed": {"reason": "library_not_found", "detail": detail}}
    keys = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    boards = [_board(index, keys) for index in range(int(keys.get("count", 0)))]
    return {"sweep": number, "driver_version": keys.get("driver"), "boards": boards}


def _board(index: int, keys: dict[str, str]) -> dict[str, object]:
    def value(key: str) -> str | None:
        return keys.get(f"g{index}.{key}")

    board: dict[str, object] = {
        "uuid": value("uuid") or f"unknown-index-{index}",
        "index": index,
        "model": value("name") or "",
        "pci_bus_id": value("pci"),
        "power_from": "average",
        "processes": _processes(value("procs") or ""),
    }
    for name, (key, read) in _READINGS.items():
        text = value(key)
        board[name] = None if text is None else read(text)
    return board


def _processes(text: str) -> list[tuple[int, float]]:
    """`pid:bytes,pid:bytes` as pairs of pid and MiB."""
    pairs = [entry.split(":") for entry in text.split(",") if entry]
    return [(int(pid), int(used) / _MIB) for pid, used in pairs]


def main() -> int:
    """Answer questions until the agent hangs up."""
    state = os.environ.get(STATE_VARIABLE)
    if not state:
        sys.stderr.write(f"{STATE_VARIABLE} must name the state file of the simulated node\n")
        return 2
    for line in sys.stdin:
        sys.stdout.write(json.dumps(sweep(int(json.loads(line)["sweep"]), Path(state))) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
