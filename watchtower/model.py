"""The words every room shares, as frozen values: what was seen, what is judged, what is owed. Imports nothing of ours, decides nothing."""

from enum import StrEnum

import msgspec


class RunState(StrEnum):
    """What can be said of a run (closed; docs/formats.md section 3)."""

    STARTING = "starting"
    PROGRESSING = "progressing"
    SLOW = "slow"
    DEADLOCKED = "deadlocked"
    HUNG = "hung"
    CRASHED = "crashed"
    COMPLETED = "completed"
    LINGERING = "lingering"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """How loudly to tell people."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


SEVERITY_RANK: dict[Severity, int] = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


class Activity(StrEnum):
    """What one rank's GPU is doing, judged against that rank's own working power."""

    WORKING = "working"  # power well above its spin level
    SPINNING = "spinning"  # ~100 % utilization and little power
    IDLE = "idle"  # ~0 % utilization and little power
    GONE = "gone"  # its process has left
    LOST = "lost"  # its GPU has fallen off the bus
    UNSEEN = "unseen"  # nothing fresh is known


class Phase(StrEnum):
    """What the run says it is doing (closed)."""

    INIT = "init"
    TRAIN = "train"
    EVAL = "eval"
    CHECKPOINT = "checkpoint"
    FINISHING = "finishing"
    FINISHED = "finished"


class PollFailure(StrEnum):
    """Why an agent's answer is missing (closed; also a metric label)."""

    TIMEOUT = "timeout"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    UNAUTHORIZED = "unauthorized"
    BAD_REPLY = "bad_reply"


class GpuState(StrEnum):
    """Whether a GPU can be read (closed)."""

    OK = "ok"
    LOST = "lost"
    UNREADABLE = "unreadable"


class NvmlState(StrEnum):
    """Whether the node's NVML answers (closed)."""

    OK = "ok"
    UNRESPONSIVE = "unresponsive"
    ABSENT = "absent"
    RELEASED = "released"


class RankSource(StrEnum):
    """How a process's rank is known (closed)."""

    ENVIRON = "environ"
    REGISTERED = "registered"
    INFERRED = "inferred"


# One reading of one GPU: (age_s before the reply, board_power_w, util_pct, mem_util_pct, sm_clock_mhz, memory_used_mib).
# Any value but the age may be None: not known, never zero.
Sample = tuple[float, float | None, float | None, float | None, float | None, float | None]


class GpuReading(msgspec.Struct, frozen=True, gc=False):
    """One GPU as one poll saw it; samples oldest first, ages counted back from the observation's `at`."""

    uuid: str
    index: int
    model: str
    state: GpuState
    power_limit_w: float | None  # the limit enforced now
    memory_total_mib: float | None
    temperature_c: float | None
    clock_event_reasons: tuple[str, ...]
    samples: list[Sample]


class RankReading(msgspec.Struct, frozen=True, gc=False):
    """One training process that holds GPUs of a node."""

    run_id: str
    run_name: str | None
    rank: int | None  # None: the process is seen, its rank is not known
    local_rank: int | None
    world_size: int | None
    rank_source: RankSource
    attempt: int | None
    user: str | None
    labels: dict[str, str]
    pid: int
    started_at: float | None  # the node's clock: an identity together with pid, not a moment to compare with
    gpu_uuids: tuple[str, ...]
    gpu_memory_mib: float | None
    proc_state: str | None  # as in /proc/PID/stat
    cpu_s: float | None  # counter: CPU seconds since start, children included
    read_bytes: float | None  # counter: storage bytes since start
    write_bytes: float | None  # counter


class ExitReading(msgspec.Struct, frozen=True, gc=False):
    """A training process that left."""

    run_id: str
    rank: int | None
    pid: int
    at: float  # watcher's clock
    exit_code: int | None
    signal: int | None
    oom_killed: bool | None


class ProgressReading(msgspec.Struct, frozen=True, gc=False):
    """One thing a trainer said about how far it is."""

    run_id: str
    rank: int | None
    at: float  # watcher's clock
    step: int | None  # completed optimizer steps
    total_steps: int | None
    throughput: float | None
    throughput_unit: str | None  # tokens/s, samples/s, steps/s
    throughput_scope: str | None  # run | gpu
    phase: Phase | None


class EventReading(msgspec.Struct, frozen=True, gc=False):
    """Something that happened on a node: xid, oom_kill, nccl_timeout, traceback, signal, checkpoint_saved, …"""

    at: float  # watcher's clock
    kind: str
    run_id: str | None
    rank: int | None
    gpu_uuid: str | None
    code: int | None
    text: str | None


class NodeReading(msgspec.Struct, frozen=True, gc=False):
    """Everything one answered poll told us about a node."""

    agent_version: str
    agent_started_at: float | None
    boot_id: str | None
    nvml_state: NvmlState
    nvml_detail: str | None
    gpus: tuple[GpuReading, ...]
    ranks: tuple[RankReading, ...]
    exits: tuple[ExitReading, ...]
    progress: tuple[ProgressReading, ...]
    events: tuple[EventReading, ...]


class Observation(msgspec.Struct, frozen=True, gc=False):
    """What one poll told us, stamped by the watcher; exactly one of `reading` and `failed` is set."""

    at: float  # watcher's clock, Unix seconds
    node: str
    reading: NodeReading | None = None
    failed: PollFailure | None = None


class Suspect(msgspec.Struct, frozen=True):
    """One rank or node that stands out, and why."""

    rank: int | None
    node: str
    gpu_index: int | None
    why: str


class Evidence(msgspec.Struct, frozen=True):
    """One number behind a verdict, in words a person reads: name, value with unit."""

    name: str
    value: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is judged of a run at one moment."""

    run_id: str
    at: float
    state: RunState
    since: float  # when it began, as far as can be told
    reason: str  # one sentence with numbers and units
    severity: Severity | None  # None: nothing to tell
    suspects: tuple[Suspect, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class Throughput(msgspec.Struct, frozen=True):
    """Work per second, with whose work it is."""

    value: float
    unit: str  # tokens/s, samples/s, steps/s
    scope: str  # run | gpu


class RankView(msgspec.Struct, frozen=True, kw_only=True):
    """One rank as people see it."""

    rank: int | None
    node: str
    gpu_index: int | None
    local_rank: int | None
    pid: int | None
    activity: Activity
    since: float | None  # when this activity began
    board_power_w: float | None  # mean over the newest poll
    working_power_w: float | None  # its own working level, None until learned
    utilization_pct: float | None
    temperature_c: float | None
    sm_clock_mhz: float | None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """All that status, pages and the API say about a run at one moment."""

    run_id: str
    run_name: str | None
    user: str | None
    labels: dict[str, str]
    state: RunState
    since: float
    reason: str
    severity: Severity | None
    suspects: tuple[Suspect, ...]
    evidence: tuple[Evidence, ...]
    first_seen_at: float
    updated_at: float
    attempt: int | None
    restarts: int  # seen while watching
    world_size: int | None
    nodes: tuple[str, ...]
    nodes_unseen: tuple[str, ...]
    gpus: int
    gpu_model: str | None
    step: int | None
    total_steps: int | None
    step_at: float | None  # when the newest step was completed
    step_time_s: float | None  # this run's usual time between two steps
    throughput: Throughput | None
    throughput_floor: Throughput | None
    phase: Phase | None
    power_share: float | None  # mean board power over ranks / their own working power
    power_history: tuple[float | None, ...]  # power_share, oldest first, one per 10 s, at most 60
    activity: dict[str, int]  # Activity -> ranks
    ranks: tuple[RankView, ...]
    last_checkpoint_at: float | None
    last_checkpoint_step: int | None
    collective_timeout_s: float | None  # NCCL's own timeout, where it is known
    progress_source: bool


class IncidentPhase(StrEnum):
    """Where an incident is in its life."""

    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"


class NoticeAction(StrEnum):
    """What a message does to the incident it is about (closed)."""

    TRIGGER = "trigger"
    UPDATE = "update"
    RESOLVE = "resolve"


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a run, of a node or of the watcher, from open to resolved. One per subject at a time."""

    uid: str  # names this episode for ever
    subject: str  # "run:<run_id>", "nodes" or "watcher"
    run_id: str | None
    phase: IncidentPhase
    severity: Severity  # the highest so far
    state: RunState  # the newest judged
    opened_at: float  # when it began to count (pending or firing)
    since: float  # the onset, as far as can be told
    reason: str
    suspects: tuple[Suspect, ...] = ()
    dedup_key: str
    seq: int = 0  # notices made so far
    told: tuple[str, ...] = ()  # sinks that are owed or were given a trigger of this episode
    fired_at: float | None = None
    suspects_told_at: float | None = None  # when people last heard of other suspects
    recovering_since: float | None = None
    resolved_at: float | None = None
    resolve_reason: str | None = None
    acked_by: str | None = None
    acked_at: float | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that has to be told about an incident, complete in itself: a sink needs nothing else to write it."""

    incident_uid: str
    seq: int
    action: NoticeAction
    severity: Severity
    state: RunState
    at: float
    since: float
    subject: str
    run_id: str | None
    dedup_key: str
    reason: str
    suspects: tuple[Suspect, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    view: RunView | None = None  # the run as it was then; None for the watcher or a node


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """One message owed to one sink: the first a sink gets about an incident is always a trigger."""

    sink: str
    action: NoticeAction
    notice: Notice
