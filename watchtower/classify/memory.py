"""What is remembered between two rounds, as plain values that a store can keep. Decides nothing."""

import msgspec

from watchtower.model import Activity, EventReading, ExitReading, Phase, RunState, Suspect, Throughput


class RankMemory(msgspec.Struct, kw_only=True):
    """One rank of a run and what its process and GPU have shown."""

    key: str
    rank: int | None
    node: str
    pid: int
    started_at: float | None = None
    local_rank: int | None = None
    gpu_uuids: tuple[str, ...] = ()
    gpu_index: int | None = None
    gpu_model: str | None = None
    power_limit_w: float | None = None
    present: bool = True
    first_seen_at: float = 0.0
    seen_at: float = 0.0  # the newest reading that named it
    gone_at: float | None = None
    exit: ExitReading | None = None
    gpu_lost_at: float | None = None
    proc_state: str | None = None
    # learned levels
    working_w: float | None = None  # mean board power while this rank works
    working_mem_util: float | None = None
    learned_polls: int = 0
    # the newest poll, means over its samples
    sample_at: float = 0.0
    board_power_w: float | None = None
    util_pct: float | None = None
    mem_util_pct: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    clock_event_reasons: tuple[str, ...] = ()
    gpu_memory_mib: float | None = None
    memory_grew_at: float | None = None
    activity: Activity = Activity.UNSEEN
    activity_since: float = 0.0
    worked_at: float | None = None  # the newest sample that showed work
    working_since: float | None = None  # of an unbroken stretch of work, None while it does not work
    # counters
    counters_at: float | None = None
    cpu_s: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    cpu_cores: float | None = None  # over the newest interval
    io_bytes_per_s: float | None = None
    big_io_at: float | None = None  # the newest moment of a big transfer
    busy_cpu_at: float | None = None
    wrote_big: bool = False  # has ever written something big


class RunMemory(msgspec.Struct, kw_only=True):
    """One run, from launch to end, over all its attempts."""

    run_id: str
    run_name: str | None = None
    user: str | None = None
    labels: dict[str, str] = {}
    world_size: int | None = None
    attempt: int | None = None  # the highest that a rank has named
    attempt_seen: int | None = None  # the one whose start was taken in
    replaced_at: float | None = None  # when a rank was last seen in a new process
    restarts: int = 0
    first_seen_at: float = 0.0
    started_at: float = 0.0  # of this attempt, as we saw it
    seen_at: float = 0.0
    ranks: dict[str, RankMemory] = {}
    keys_on: dict[str, list[str]] = {}  # node -> keys of the ranks that live, or lived, there
    # progress
    fed: bool = False  # something that trainers print or write was understood
    step: int | None = None
    step_at: float | None = None  # when the newest step came
    total_steps: int | None = None
    highest_step: int | None = None  # over all attempts
    highest_step_at: float | None = None
    gaps_s: list[float] = []  # between two entries with a new step, newest last
    paces_s: list[float] = []  # seconds per step of each of those, newest last
    pace_at: list[float] = []
    usual_pace_s: float | None = None
    throughput: Throughput | None = None
    throughputs: list[tuple[float, float]] = []  # (at, value in the run's own unit), newest last
    phase: Phase | None = None
    phase_at: float | None = None
    finished_at: float | None = None
    last_checkpoint_at: float | None = None
    last_checkpoint_step: int | None = None
    collective_timeout_s: float | None = None
    ever_worked: bool = False
    # pauses that healed by themselves: pattern -> longest, seconds
    pauses_s: dict[str, float] = {}
    pause_since: float | None = None
    pause_pattern: str | None = None
    pause_was_fault: bool = False
    slow_since: float | None = None
    below_floor_since: float | None = None
    # what was judged
    state: RunState | None = None
    since: float = 0.0
    suspects: tuple[Suspect, ...] = ()
    fault_step: int | None = None  # the step at which a fault was named; a newer one clears it
    events: list[EventReading] = []  # the newest few that matter, oldest first
    power_history: list[float | None] = []
    power_history_at: float = 0.0

    def present(self) -> list[RankMemory]:
        """Ranks whose process is there, in no particular order."""
        return [rank for rank in self.ranks.values() if rank.present]


class NodeMemory(msgspec.Struct, kw_only=True):
    """One agent and when it was last heard."""

    node: str
    answered_at: float | None = None
    failed: str | None = None  # the newest failure, None while it answers
    silent_since: float | None = None
    nvml_state: str = "ok"
    nvml_detail: str | None = None
    nvml_since: float | None = None  # when it was first seen in a state other than ok
    runs: tuple[str, ...] = ()  # remembered runs that have, or had, ranks there
