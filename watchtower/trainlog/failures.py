"""Lines with which trainers, launchers and libraries say that something broke or was told to stop. Judges nothing.

What is published is a sentence of ours with the names and numbers that a pattern picked out. Exit codes of victims (the
ranks that a launcher ended because another one failed) are marks of the kind `rank_exit`: known, but blamed on nobody.
"""

import re

from watchtower.trainlog.lines import Record
from watchtower.trainlog.marks import Mark

_NCCL_TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: \w{0,10}Work\w{1,12}\((.{0,400}?)\) ran for (\d{1,12}) milliseconds"
)
_NCCL_FIELD = re.compile(r"\b(SeqNum|OpType|Timeout\(ms\))=(\w{1,40})")
# Source: ProcessGroupNCCL.cpp, its options as logged at INFO when a group is made.
_NCCL_OPTIONS = re.compile(r"ProcessGroupNCCL initialization options:.{0,200}?TIMEOUT\(ms\): (\d{1,12})\b")
_GROUP_RANK = re.compile(r"\[Rank (\d{1,6})\]")
_NCCL_STUCK = re.compile(r"watchdog got stuck for (\d{1,6}) seconds")
_CUDA_OOM = re.compile(r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError")
_CUDA_ERROR = re.compile(
    r"CUDA error: (uncorrectable ECC error|device-side assert|an illegal memory access|unspecified launch failure"
    r"|misaligned address|invalid device ordinal|unknown error)?"
)
_FATAL = re.compile(
    r"^(?:Fatal Python error: |Segmentation fault|.{0,80}\*{3} Process received signal \*{3})"
)
_TRACEBACK = re.compile(r"^\s{0,8}Traceback \(most recent call last\):")
_EXCEPTION = re.compile(r"^((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60})(?=:|\s{0,2}$)")
_ELASTIC = re.compile(r"failed \(exitcode: (-?\d{1,6})\) local_rank: (\d{1,6}) \(pid: (\d{1,10})\)")
_ROOT_CAUSE = re.compile(r"^Root Cause \(first observed failure\):")
_FAILURES = re.compile(r"^(?:Failures|={20,100}$)")
_REPORT_RANK = re.compile(r"^\s{1,4}rank {1,8}: (\d{1,8}) \(local_rank: \d{1,6}\)")
_REPORT_EXIT = re.compile(r"^\s{1,4}exitcode {1,4}: (-?\d{1,6}) \(pid: (\d{1,10})\)")
_DEEPSPEED_GOOD = re.compile(r"\[launch\.py:\d{1,6}:main\] Process (\d{1,10}) exits successfully")
_DEEPSPEED_BAD = re.compile(r"exits with return code = (-?\d{1,6})(?!\d)")
_SRUN = re.compile(
    r"^srun: error: \S{1,80}: tasks? ([\d,-]{1,80}): (Exited with exit code (\d{1,3})|Killed|Terminated|Segmentation fault|Aborted)"
)
_SLURM_CANCEL = re.compile(
    r"^slurmstepd\S{0,80}: error: \*{3} (JOB|STEP) \S{1,60} ON \S{1,80} CANCELLED AT \S{1,40}(?: DUE TO ([A-Z ]{1,40}))? \*{3}"
)
_SLURM_OOM = re.compile(r"Detected \d{1,9} oom[_-]kill event|OOM Killed")
_SIGTERM = re.compile(r"(?:exiting program after receiving SIGTERM|^Main process received SIGTERM, exiting)")
_SCHEDULER_REASONS = frozenset({"TIME LIMIT", "PREEMPTION", "JOB REQUEUE", "NODE FAILURE"})
_MAX_OPEN_TRACEBACKS = 64


class Failures:
    """Reads failure lines; keeps what spans several lines: tracebacks (one per writer) and torchrun's report."""

    def __init__(self) -> None:
        self._open: set[int | None] = set()
        self._in_root_cause = False
        self._report_rank: int | None = None
        self._failed = False

    @property
    def expecting(self) -> bool:
        """Whether any next line may belong to what has begun: the name of an exception comes last and can be anything."""
        return bool(self._open) or self._report_rank is not None

    def read(self, record: Record) -> Mark | None:
        """One line; None for nearly all of them."""
        text = record.text
        mark = (
            self._traceback(record)
            or _library(text, record.rank)
            or self._torchrun(text)
            or self._scheduler(text)
        )
        if mark is not None and mark.kind not in ("signal", "rank_exit", "collective_timeout"):
            self._failed = True
        return mark

    def _traceback(self, record: Record) -> Mark | None:
        if _TRACEBACK.search(record.text):
            if len(self._open) < _MAX_OPEN_TRACEBACKS:
                self._open.add(record.source)
            return None
        if record.source not in self._open or not (found := _EXCEPTION.search(record.text)):
            return None
        self._open.discard(record.source)
        name = found.group(1).rpartition(".")[2]
        if name == "ChildFailedError" or _CUDA_OOM.search(record.text):
            return None  # torchrun's own, after a rank's; an out of memory has a word of its own
        return Mark(kind="traceback", rank=record.rank, text=name)

    def _torchrun(self, text: str) -> Mark | None:
        if found := _ELASTIC.search(text):
            code = int(found.group(1))
            return _launcher(
                code, f"failed (exitcode: {code}) local_rank: {found.group(2)}", pid=int(found.group(3))
            )
        if _ROOT_CAUSE.search(text):
            self._in_root_cause, self._report_rank = True, None
        elif _FAILURES.search(text):
            self._in_root_cause, self._report_rank = False, None
        elif found := _REPORT_RANK.search(text):
            self._report_rank = int(found.group(1))
        elif (found := _REPORT_EXIT.search(text)) and self._report_rank is not None:
            code, pid, rank = int(found.group(1)), int(found.group(2)), self._report_rank
            self._report_rank = None
            if not self._in_root_cause:
                return Mark(kind="rank_exit", rank=rank, pid=pid, exit_code=code)
            said = f"torchrun names rank {rank} as the first failure it saw (exit code {code})"
            return _launcher(code, said, pid=pid, rank=rank)
        return None

    def _scheduler(self, text: str) -> Mark | None:
        if found := _DEEPSPEED_GOOD.search(text):
            return Mark(kind="rank_exit", pid=int(found.group(1)), exit_code=0)
        if found := _DEEPSPEED_BAD.search(text):
            return _launcher(int(found.group(1)), f"exits with return code = {found.group(1)}")
        if found := _SRUN.search(text):
            code = int(found.group(3)) if found.group(3) else None
            return _launcher(code, f"srun: tasks {found.group(1)}: {found.group(2).lower()}")
        if found := _SLURM_CANCEL.search(text):
            return self._cancelled(found.group(1), found.group(2))
        if _SLURM_OOM.search(text):
            return Mark(kind="oom_kill", code=9, text="Slurm saw an out-of-memory kill in this step")
        if _SIGTERM.search(text):
            return Mark(kind="signal", code=15, text="the trainer was told to stop (SIGTERM)")
        return None

    def _cancelled(self, what: str, reason: str | None) -> Mark | None:
        if reason is None and what == "STEP" and self._failed:
            return None  # srun ends the step when a task has failed: a consequence, not a wish
        if reason == "NODE FAILURE":
            return _launcher(None, "Slurm ended the job: node failure")
        why = f": {reason.lower()}" if reason in _SCHEDULER_REASONS else ""
        return Mark(kind="signal", code=15, text=f"cancelled by Slurm{why}")


def _library(text: str, rank: int | None) -> Mark | None:
    if found := _NCCL_TIMEOUT.search(text):
        return _nccl_timeout(text, found.group(1), int(found.group(2)), rank)
    if found := _NCCL_OPTIONS.search(text):
        limit_s = int(found.group(1)) // 1000
        return Mark(
            kind="collective_timeout", rank=rank, code=limit_s, text=f"collectives time out after {limit_s} s"
        )
    if found := _NCCL_STUCK.search(text):
        said = f"the NCCL watchdog was stuck for {found.group(1)} s"
        return Mark(kind="nccl_watchdog_stuck", rank=rank, text=said)
    if _CUDA_OOM.search(text):
        return Mark(kind="cuda_oom", rank=rank, text="CUDA out of memory")
    if found := _CUDA_ERROR.search(text):
        what = f"CUDA error: {found.group(1)}" if found.group(1) else "CUDA error"
        return Mark(kind="cuda_error", rank=rank, text=what)
    if _FATAL.search(text):
        return Mark(kind="fatal_signal", rank=rank, text="the process was killed by a fault of its own")
    return None


def _nccl_timeout(text: str, work: str, ran_ms: int, rank: int | None) -> Mark:
    fields = dict(_NCCL_FIELD.findall(work))
    group = _GROUP_RANK.search(text)
    sequence = fields.get("SeqNum", "")
    limit = fields.get("Timeout(ms)", "")
    parts = [f"NCCL timeout in {fields.get('OpType', 'a collective').lstrip('_')}"]
    if sequence.isdigit():
        parts.append(f"sequence {sequence}")
    if limit.isdigit():
        parts.append(f"limit {int(limit) // 1000} s")
    parts.append(f"ran for {ran_ms // 1000} s")
    if rank is None and group:
        rank = int(group.group(1))
    return Mark(
        kind="nccl_timeout",
        rank=rank,
        code=int(sequence) if sequence.isdigit() else None,
        text=", ".join(parts),
    )


def _launcher(code: int | None, said: str, *, pid: int | None = None, rank: int | None = None) -> Mark:
    return Mark(kind="launcher_exit", code=code, text=said, pid=pid, rank=rank, exit_code=code)
