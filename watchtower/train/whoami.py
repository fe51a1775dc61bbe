"""Finds out, inside a training process, which run and rank it is. Reads the environment and an already imported torch; imports neither."""

import os
import re
import socket
import sys

_SAFE_ID = re.compile(r"[A-Za-z0-9][\w.:+@-]{0,127}")
_RANKS = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "HOROVOD_RANK",
    "MV2_COMM_WORLD_RANK",
    "PMI_RANK",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
)
_LOCAL_RANKS = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "HOROVOD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
)
_WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "HOROVOD_SIZE", "PMI_SIZE", "FLUX_JOB_SIZE")
_LOCAL_ADDRESSES = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared with, not bound to


def run_id() -> str:
    """The id under which the agent knows this run too; a job of nobody's naming gets one from its parent process."""
    named = (_registered(), _slurm(), _group(), _torchrun(), _parent())
    return next((found for found in named if found is not None and is_run_id(found)), f"pid-{os.getppid()}")


def is_run_id(found: object) -> bool:
    """Whether the agent would take this for a run's id; it is a folder's name too, so nothing may lead out of it."""
    return isinstance(found, str) and _SAFE_ID.fullmatch(found) is not None


def rank_and_world() -> tuple[int, int | None]:
    """Global rank and world size: from torch where a process group exists, else from the launcher's variables, else rank 0."""
    torch_says = _from_torch()
    if torch_says is not None:
        return torch_says
    rank, world = _first(_RANKS), _first(_WORLDS)
    tasks = _first(("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))
    if rank is None and tasks is not None and tasks > 1:
        return _first(("SLURM_PROCID",)) or 0, world or tasks
    return rank or 0, world


def local_rank() -> int | None:
    """The rank on this node, None where no launcher says it."""
    return _first(_LOCAL_RANKS)


def attempt() -> int | None:
    """How often this run was restarted, None where nobody counts."""
    counts = [_first((name,)) for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _from_torch() -> tuple[int, int | None] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _registered() -> str | None:
    return os.environ.get("WATCHTOWER_RUN_ID")


def _slurm() -> str | None:
    env = os.environ
    if "SLURM_ARRAY_JOB_ID" in env and "SLURM_ARRAY_TASK_ID" in env:
        return f"slurm-{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    if "SLURM_HET_JOB_ID" in env and "SLURM_HET_JOB_OFFSET" in env:
        return f"slurm-{env['SLURM_HET_JOB_ID']}+{env['SLURM_HET_JOB_OFFSET']}"
    return f"slurm-{env['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in env else None


def _group() -> str | None:
    return os.environ.get("POD_GROUP_UID") or os.environ.get("JOB_UID")


def _torchrun() -> str | None:
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if run and run.lower() != "none":
        return f"torchrun-{run}"
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not address or not port:
        return None
    return f"{socket.gethostname() if address in _LOCAL_ADDRESSES else address}:{port}"


def _parent() -> str:
    return f"proc-{socket.gethostname()}-{os.getppid()}"


def _first(names: tuple[str, ...]) -> int | None:
    texts = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 8), None)
