"""The numbers that classify judges by, each with where it comes from; a user may change any of them. Reads no file itself."""

import msgspec


class RunRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a site says about runs whose id or name matches a shell-style pattern; the first match wins."""

    match: str
    throughput_floor: str | None = None  # "9000 tokens/s" of the whole run, "0.5 steps/s", "120 samples/s"
    expected_ranks: int | None = None  # normally learned from world_size
    collective_timeout_s: float | None = (
        None  # NCCL's own, where no log says it; pages then say when it will strike
    )


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds, allowances and shares. Times in seconds."""

    # A node that has not answered for this long is not seen. Three polls of the slowest usual interval (10 s).
    stale_after_s: float = 35.0

    # Processes exist but no step was completed yet: start-up, compiling, tokenising. Source: default of the state table.
    start_allowance_s: float = 1800.0

    # Every rank spins before the first step and nothing prepares: no host busy, no bytes, no memory growing. Tokenising,
    # loading and compiling show at least one of those.
    init_spin_hold_s: float = 600.0

    # Every rank stuck, none idle, steps silent beyond the run's own pace. Healthy look-alikes with a step feed end within
    # seconds (a rank-0 evaluation of 3.7 s is the longest recorded); flaps of a fabric heal within a minute.
    deadlock_hold_s: float = 55.0
    # The same without a step feed: nothing but power says that steps stopped.
    unfed_deadlock_hold_s: float = 150.0
    # Only rank 0 idle, the rest waiting for it: what a checkpoint or upload by rank 0 looks like when its bytes are not seen.
    lead_rank_hold_s: float = 330.0
    # Rank 0 idle, the rest waiting, in a run whose checkpoints' bytes were seen before and do not move now.
    silent_save_hold_s: float = 150.0
    # Every rank idle. Epoch boundaries of 4 min 20 s are healthy.
    idle_hold_s: float = 300.0
    # Every rank idle while hosts burn CPU (workers respawning, compiling).
    busy_host_hold_s: float = 900.0
    # A recognised or declared pause (a rank works, writes, or the run says so) may last this long without a step.
    pause_limit_s: float = 3600.0
    # All ranks work and no step comes: the run's own pace is waited out several times, and never less than this.
    working_stall_s: float = 1800.0

    # A vanished process may be a torn process list or the first of a whole run leaving.
    gone_hold_s: float = 20.0
    # A GPU off the bus, a node that fell silent.
    lost_hold_s: float = 20.0
    node_loss_hold_s: float = 60.0

    # Finished work may take this long to upload and tear down. Uploads of 10-20 min are healthy.
    linger_allowance_s: float = 1500.0

    # Share of the run's own pace below which it is slow, and for how long.
    slow_share: float = 0.7
    slow_hold_s: float = 180.0

    # A run that has left, or that nobody has seen, is forgotten after this long.
    forget_after_s: float = 86400.0

    # Share of its own working power up to which a rank with full utilization and still memory counts as spinning.
    # Stuck boards sit at 0.14-0.6 of their own working power; small boards (T4) at 0.6 with memory utilization 0.
    spin_share: float = 0.55
    spin_share_still_memory: float = 0.8
    # Before a working level is learned: work is assumed to draw this share of the enforced limit.
    assumed_working_share: float = 0.6

    # Storage bytes per second of one rank that count as writing or reading something big.
    big_io_bytes_per_s: float = 5e6
    # CPU cores of one rank (children included) beyond a spinning host thread.
    busy_cores: float = 1.6
