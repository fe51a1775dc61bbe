"""Decides from a process's start environment and cgroup which run and rank it is. Pure: reads nothing, knows no other process."""

import re
from collections.abc import Mapping

import msgspec

_RANK_SOURCES: tuple[tuple[str, str | None, str | None], ...] = (
    # (rank, local rank, world size), in the order in which they are believed after torchrun's own
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"),
    ("PMIX_RANK", None, None),
)
_NODE_INDEX = ("GROUP_RANK", "NODE_RANK", "PET_NODE_RANK", "SLURM_NODEID", "JOB_COMPLETION_INDEX")
_LABELS = {
    "SLURM_JOB_PARTITION": "partition",
    "SLURM_JOB_ACCOUNT": "account",
    "POD_NAMESPACE": "namespace",
    "WATCHTOWER_TEAM": "team",
}
_OTHERS = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_HET_JOB_ID",
    "SLURM_HET_JOB_OFFSET",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NNODES",
    "SLURM_RESTART_COUNT",
    "SLURM_JOB_NAME",
    "JAX_PROCESS_ID",
    "JAX_NUM_PROCESSES",
    "PET_NNODES",
    "POD_GROUP_UID",
    "JOB_UID",
    "JOBSET_NAME",
    "WATCHTOWER_RUN_ID",
    "WATCHTOWER_RUN_NAME",
    "WATCHTOWER_DIR",
)
ALLOWED_VARIABLES: frozenset[bytes] = frozenset(
    name.encode()
    for name in (
        *_OTHERS,
        *_NODE_INDEX,
        *_LABELS,
        *(name for names in _RANK_SOURCES for name in names if name is not None),
    )
)
"""Every environment variable that is ever kept; all others are dropped as they are read."""

_SAFE_ID = re.compile(r"[A-Za-z0-9][\w.:+@-]{0,127}")
_POD_UID = re.compile(r"\bpod([0-9a-f]{8}[_-]?(?:[0-9a-f]{4}[_-]?){3}[0-9a-f]{12})")
_SLURM_CGROUP = re.compile(r"/job_(\d{1,12})(?:/|$)", re.MULTILINE)
# At the root of the tree: further down a user may make folders of any name.
_SLURMS_OWN = re.compile(
    r":/(?:system\.slice/)?[\w.@-]{0,80}slurm[\w.@-]{0,80}(?:/uid_\d{1,10})?/job_(\d{1,12})(?:/|$)",
    re.MULTILINE,
)
_LARGEST = 1_000_000
_LOCAL_ADDRESSES = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared with, not bound to


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one process says of itself through its environment and cgroup."""

    run_id: str | None = None
    vouched: bool = (
        False  # the scheduler's own cgroup says the same of the run; an environment can be made up
    )
    run_name: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    node_index: int | None = None  # which of the run's nodes this is
    several_nodes: bool = False
    attempt: int | None = None
    labels: dict[str, str] = {}
    job_folder: str | None = None  # WATCHTOWER_DIR


def claim(environ: Mapping[str, str], cgroup: str, host: str) -> Claim:
    """Read run and rank of one process.

    Args:
        environ: the allowed variables at start; empty where they cannot be read or were overwritten.
        cgroup: the text of /proc/PID/cgroup.
        host: this node's name, to tell runs apart whose master address is a loopback one.

    Returns:
        What is known; fields are None where nothing trustworthy says them. A rank that could also be a pod's index is kept
        as a rank and as a node index; who sees all processes of the node decides.
    """
    rank, local_rank, world_size = _rank(environ)
    node_index = next((index for name in _NODE_INDEX if (index := _count(environ, name)) is not None), None)
    bare_rank = "LOCAL_RANK" not in environ and "RANK" in environ
    if bare_rank and node_index is None:
        node_index = _count(environ, "RANK")
    nodes = max(
        _count(environ, "SLURM_NNODES") or 1,
        _count(environ, "PET_NNODES") or 1,
        (world_size or 1) if bare_rank else 1,
    )
    run_id = _run_id(environ, cgroup, host)
    job = _SLURMS_OWN.search(cgroup)
    return Claim(
        run_id=run_id,
        vouched=job is not None and run_id == f"slurm-{job.group(1)}",
        run_name=_short(
            environ.get("WATCHTOWER_RUN_NAME") or environ.get("SLURM_JOB_NAME") or environ.get("JOBSET_NAME")
        ),
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        node_index=node_index,
        several_nodes=nodes > 1,
        attempt=_attempt(environ),
        labels={label: value for name, label in _LABELS.items() if (value := _short(environ.get(name)))},
        job_folder=environ.get("WATCHTOWER_DIR"),
    )


def safe_id(text: str) -> bool:
    """Whether a run id may be published and used as a file name: no slash, no dot first, nothing a shell would expand."""
    return _SAFE_ID.fullmatch(text) is not None


def _rank(environ: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    world = _count(environ, "WORLD_SIZE")
    local = _count(environ, "LOCAL_RANK")
    if "RANK" in environ and local is not None:
        return _count(environ, "RANK"), local, world
    for rank_name, local_name, world_name in _RANK_SOURCES:
        rank = _count(environ, rank_name)
        if rank is None:
            continue
        return (
            rank,
            _count(environ, local_name),
            _count(environ, world_name) or _count(environ, "SLURM_NTASKS"),
        )
    tasks = _count(environ, "SLURM_STEP_NUM_TASKS") or _count(environ, "SLURM_NTASKS") or 1
    # Workers of a torchrun inherit the task number of their node: with its marks around it is not a rank.
    under_torchrun = "TORCHELASTIC_RUN_ID" in environ or "GROUP_RANK" in environ
    if tasks > 1 and not under_torchrun and local is None and _count(environ, "SLURM_PROCID") is not None:
        return _count(environ, "SLURM_PROCID"), _count(environ, "SLURM_LOCALID"), tasks
    per_node, node = _count(environ, "LOCAL_WORLD_SIZE"), _count(environ, "NODE_RANK")
    if local is not None and per_node and node is not None:
        return node * per_node + local, local, world
    if "RANK" in environ:
        return _count(environ, "RANK"), None, world
    jax = _count(environ, "JAX_PROCESS_ID")
    return jax, local, _count(environ, "JAX_NUM_PROCESSES") if jax is not None else world


def _run_id(environ: Mapping[str, str], cgroup: str, host: str) -> str | None:
    candidates = (
        environ.get("WATCHTOWER_RUN_ID"),
        _slurm(environ),
        environ.get("POD_GROUP_UID") or environ.get("JOB_UID"),
        _torchrun(environ, host),
        _from_cgroup(cgroup),
    )
    return next((found for found in candidates if found and safe_id(found)), None)


def _slurm(environ: Mapping[str, str]) -> str | None:
    job, array, part = (environ.get(f"SLURM_{name}", "") for name in ("JOB_ID", "ARRAY_JOB_ID", "HET_JOB_ID"))
    task, offset = environ.get("SLURM_ARRAY_TASK_ID", ""), environ.get("SLURM_HET_JOB_OFFSET", "")
    if array.isdigit() and task.isdigit():
        return f"slurm-{array}_{task}"
    if part.isdigit() and offset.isdigit():
        return f"slurm-{part}+{offset}"
    return f"slurm-{job}" if job.isdigit() else None


def _torchrun(environ: Mapping[str, str], host: str) -> str | None:
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    if run and run.lower() != "none":  # torchrun's default is that very word
        return f"torchrun-{run}"
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    if not address or not port.isdigit():
        return None
    return f"{host if address in _LOCAL_ADDRESSES else address}:{port}"


def _from_cgroup(cgroup: str) -> str | None:
    if found := _SLURM_CGROUP.search(cgroup):
        return f"slurm-{found.group(1)}"
    if found := _POD_UID.search(cgroup):
        return found.group(1).replace("_", "-")
    return None


def _attempt(environ: Mapping[str, str]) -> int | None:
    restarts = [_count(environ, name) for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")]
    known = [value for value in restarts if value is not None]
    return sum(known) if known else None


def _count(environ: Mapping[str, str], name: str | None) -> int | None:
    text = environ.get(name, "") if name else ""
    # Not int() alone: "-1", " 3" and other alphabets' digits are all numbers to it.
    return (
        int(text) if text.isascii() and text.isdecimal() and len(text) < 8 and int(text) <= _LARGEST else None
    )


def _short(text: str | None) -> str | None:
    return "".join(char for char in text if char.isprintable())[:128] or None if text else None
