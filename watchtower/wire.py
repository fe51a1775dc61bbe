"""What an agent says over HTTP, version 1, as frozen structs (docs/formats.md section 1). Says nothing about who sends or receives.

Unknown fields are ignored and everything that an older agent may lack has a default, so neighbouring versions understand
each other. Closed lists are kept as plain strings here: a newer agent may know a word that we do not, and that must cost
one `unknown`, not the whole poll.
"""

import msgspec

from watchtower.model import Sample

WIRE_VERSION = 1
DEFAULT_AGENT_PORT = 9477


class AgentInfo(msgspec.Struct, frozen=True, gc=False):
    """Which agent speaks."""

    version: str = ""
    started_at: float | None = None
    boot_id: str | None = None


class Nvml(msgspec.Struct, frozen=True, gc=False):
    """How the node's NVML is: ok | unresponsive | absent | released."""

    state: str = "ok"
    driver_version: str | None = None
    since: float | None = None
    detail: str | None = None


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One board and its samples since the cursor, oldest first (see model.Sample)."""

    uuid: str
    index: int
    pci_bus_id: str | None = None
    model: str = ""
    state: str = "ok"  # ok | lost | unreadable
    power_limit_w: float | None = None
    memory_total_mib: float | None = None
    temperature_c: float | None = None
    clock_event_reasons: tuple[str, ...] = ()
    samples: list[Sample] = []
    detail: str | None = None  # why it is not ok, or which readings are missing and why


class Rank(msgspec.Struct, frozen=True, gc=False):
    """One training process that holds this node's GPUs now."""

    run_id: str
    pid: int
    run_name: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    rank_source: str = "inferred"
    attempt: int | None = None
    user: str | None = None
    labels: dict[str, str] = {}
    started_at: float | None = None
    gpu_uuids: tuple[str, ...] = ()
    gpu_memory_mib: float | None = None
    proc_state: str | None = None
    cpu_s: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None


class Exit(msgspec.Struct, frozen=True, gc=False):
    """A training process that left; exit_code and signal are null where they cannot be known."""

    run_id: str
    pid: int
    at: float
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool | None = None


class Progress(msgspec.Struct, frozen=True, gc=False):
    """What a trainer said; `at` is the node's clock."""

    run_id: str
    at: float
    rank: int | None = None
    step: int | None = None
    total_steps: int | None = None
    throughput: float | None = None
    throughput_unit: str | None = None
    throughput_scope: str | None = None
    phase: str | None = None


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened; `at` is the node's clock."""

    at: float
    kind: str
    run_id: str | None = None
    rank: int | None = None
    gpu_uuid: str | None = None
    code: int | None = None
    text: str | None = None


class Snapshot(msgspec.Struct, frozen=True, gc=False, omit_defaults=False):
    """The answer to GET /v1/snapshot?after=<cursor>."""

    wire: int
    node: str
    taken_at: float
    agent: AgentInfo = AgentInfo()
    cursor: str = ""
    nvml: Nvml = Nvml()
    gpus: tuple[Gpu, ...] = ()
    ranks: tuple[Rank, ...] = ()
    exits: tuple[Exit, ...] = ()
    progress: tuple[Progress, ...] = ()
    events: tuple[Event, ...] = ()


_decoder = msgspec.json.Decoder(Snapshot)
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> Snapshot:
    """Read one snapshot.

    Raises:
        msgspec.DecodeError (msgspec.ValidationError included): not a snapshot; the caller counts a bad reply.
    """
    return _decoder.decode(body)


def encode(snapshot: Snapshot) -> bytes:
    """Write one snapshot as JSON; NaN becomes null, which is what "not known" looks like on the wire."""
    return _encoder.encode(snapshot)
