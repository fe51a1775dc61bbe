"""Writes a small file that says which step this rank has completed. Never raises into training, never makes a step wait, invents no progress.

`beat` only leaves its values behind; a daemon thread writes the newest ones at most once a second. A disk that hangs holds
that thread and nothing else. The file is docs/formats.md section 7.
"""

import atexit
import contextlib
import json
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from watchtower.train import whoami

_EVERY_S = 1.0
_LAST_WRITE_S = 0.5  # what leaving the interpreter may cost at most
_RATE_WINDOW_S = 60.0
_RATE_AT_LEAST_S = 5.0

_Values = dict[str, Any]


class _Writer:
    """The thread that writes, and what it is to write next."""

    def __init__(self) -> None:
        self.newest: _Values | None = None
        self.wake = threading.Event()
        self.written = threading.Event()
        self.thread: threading.Thread | None = None
        self.hurry = threading.Event()  # set when the interpreter leaves
        self._work_done: deque[tuple[float, float, str]] = deque(maxlen=256)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name="watchtower-beat", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            self.wake.wait()
            self.wake.clear()
            values = self.newest
            if values is not None:
                with contextlib.suppress(
                    Exception
                ):  # a heartbeat that cannot be written must not disturb training
                    self._write(values)
            self.written.set()
            self.hurry.wait(_EVERY_S)

    def _write(self, values: _Values) -> None:
        said = {name: _plain(value) for name, value in values.items()}
        if said["throughput"] is None:
            said.update(self._rate(said))
        elif said["throughput_unit"] is None:
            said["throughput"] = None  # a number without a unit says nothing
        rank, world = whoami.rank_and_world()
        said["pid"] = os.getpid()
        said["run_id"] = said["run_id"] if whoami.is_run_id(said["run_id"]) else None
        said["rank"] = rank if said["rank"] is None else said["rank"]
        for name, found in (
            ("run_id", whoami.run_id()),
            ("world_size", world),
            ("local_rank", whoami.local_rank()),
            ("attempt", whoami.attempt()),
            ("run_name", os.environ.get("WATCHTOWER_RUN_NAME") or os.environ.get("SLURM_JOB_NAME")),
        ):
            if said[name] is None:
                said[name] = found
        folder = _folder(str(said["run_id"]))
        name = f"rank_{said['rank']}.json"
        unfinished = folder / f".{name}.{said['pid']}"
        kept = {key: value for key, value in said.items() if value is not None}
        unfinished.write_text(json.dumps(kept, allow_nan=False), encoding="utf-8")
        unfinished.replace(folder / name)

    def _rate(self, said: _Values) -> _Values:
        """Work per second over the last minute, from what the caller counts; nothing when it counts nothing."""
        name = "tokens" if said["tokens"] is not None else "samples"
        count, at = said[name], said["at"]
        if count is None:
            return {}
        if self._work_done and (self._work_done[-1][2] != name or self._work_done[-1][1] > count):
            self._work_done.clear()  # the counter began anew
        self._work_done.append((at, count, name))
        while at - self._work_done[0][0] > _RATE_WINDOW_S and len(self._work_done) > 2:
            self._work_done.popleft()
        since, before, _ = self._work_done[0]
        if at - since < _RATE_AT_LEAST_S or count <= before:
            return {}
        rate = round((count - before) / (at - since), 3)
        return {
            "throughput": rate,
            "throughput_unit": f"{name}/s",
            "throughput_scope": said["throughput_scope"] or "run",
        }


_writer = _Writer()


def beat(
    step: int,
    total_steps: int | None = None,
    *,
    tokens: int | None = None,
    samples: int | None = None,
    loss: float | None = None,
    phase: str | None = None,
    blocks_left: int | None = None,
    throughput: float | None = None,
    throughput_unit: str | None = None,
    throughput_scope: str | None = None,
    run_id: str | None = None,
    run_name: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    attempt: int | None = None,
) -> None:
    """Say that `step` optimizer steps are completed. Call it on every rank, every step; it returns at once and never raises.

    Args:
        step: completed steps of the whole training, across restarts; only its rise is progress.
        total_steps: where training ends.
        tokens: tokens that the whole run has processed so far; the rate is worked out from its rise.
        samples: the same in samples, for runs that count those.
        loss: a plain number; a tensor is left out, because reading it would wait for the GPU.
        phase: init, train, eval, checkpoint, finishing or finished; say "eval" and "checkpoint" before such a pause begins.
        blocks_left: micro-batches that this rank's loader still has; ranks that differ will wait for each other for ever.
        throughput: work per second, if the script knows better, with throughput_unit (tokens/s, samples/s, steps/s) and
            throughput_scope (run, gpu).
        run_id: and the other names: only where the launcher's environment does not say them.
    """
    try:
        writer = _writer
        writer.newest = {
            "at": time.time(),
            "step": step,
            "total_steps": total_steps,
            "tokens": tokens,
            "samples": samples,
            "loss": loss,
            "phase": phase,
            "blocks_left": blocks_left,
            "throughput": throughput,
            "throughput_unit": throughput_unit,
            "throughput_scope": throughput_scope,
            "run_id": run_id,
            "run_name": run_name,
            "rank": rank,
            "world_size": world_size,
            "local_rank": local_rank,
            "attempt": attempt,
        }
        if writer.thread is None:
            writer.start()
        if not writer.wake.is_set():
            writer.wake.set()
    except Exception:  # noqa: BLE001 - training goes on, whatever is wrong here
        return


def _folder(run_id: str) -> Path:
    named = os.environ.get("WATCHTOWER_DIR")
    folder = Path(named or f"/run/watchtower/{os.getuid()}")
    if named:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    below = folder / run_id
    below.mkdir(
        mode=0o700, exist_ok=True
    )  # the default folder is the agent's to make: without an agent, nothing is written
    return below


def _plain(value: object) -> object:
    if value is None or isinstance(value, (str, int)):
        return value
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, (int, float)) and value - value == 0:  # neither NaN nor infinite
        return value
    return None


def _after_fork() -> None:
    """A child has none of the parent's threads, and is not the parent's rank."""
    global _writer  # noqa: PLW0603 - one process, one heartbeat
    _writer = _Writer()


def _last_write() -> None:
    writer = _writer
    if writer.thread is None or writer.newest is None:
        return
    writer.written.clear()
    writer.hurry.set()
    writer.wake.set()
    writer.written.wait(_LAST_WRITE_S)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_last_write)
