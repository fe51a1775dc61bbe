"""What the sampling process and the agent say over a pipe: one JSON object a line. Reads no GPU and starts no process.

The agent starts the sampling command with a pipe on its standard input and one on its standard output; standard error
goes to the agent's log. Then, about once a second and never with a second question before the answer:

    agent    {"sweep": 1}
    sampler  {"sweep": 1, "driver_version": "580.95.05", "boards": [{"uuid": "GPU-…", "index": 0, "power_w": 912.4, …}]}

A sampler that cannot read any board answers `{"sweep": 1, "failed": {"reason": "…", "detail": "…"}}` and leaves; the
agent starts another after a while. At the end of its input a sampler leaves at once.

Where WATCHTOWER_BREADCRUMB_FD names an open file, the sampler writes before each call that may block 64 bytes at offset
0: the board's index (or `-`), a blank, the call's name, padded with blanks. The agent reads it only when an answer is
late. A sampler of your own (`--sampler-command`) may leave that out, and every field but `sweep`, `uuid` and `index`.
"""

import msgspec

BREADCRUMB_VARIABLE = "WATCHTOWER_BREADCRUMB_FD"
BREADCRUMB_BYTES = 64
# In place of a UUID that cannot be read: this and the board's index.
NAMELESS = "unknown-index-"
# One board is about 600 bytes and a process 30; anything near this is not an answer.
MAX_LINE_BYTES = 4 * 1024 * 1024


class Ask(msgspec.Struct, frozen=True):
    """One question: read every board once."""

    sweep: int


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One board in one sweep. A reading that failed is None, and `missing` says why; it is never zero.

    Args:
        state: ok | lost | unreadable (neither power nor utilization could be read).
        processes: (pid, MiB or None) of each process on it; None: not read this time, or not known.
        missing: reading -> reason, for each that was tried and failed.
        power_from: which source gave power_w: average | instant | usage.
        ecc_uncorrected: uncorrected memory errors since the driver was loaded; None: not read this time.
        recovery_action: what the driver wants done, 0 for nothing; None: not read this time.
    """

    uuid: str
    index: int
    pci_bus_id: str | None = None
    model: str = ""
    state: str = "ok"
    detail: str | None = None
    power_w: float | None = None
    power_from: str | None = None
    power_limit_w: float | None = None
    utilization_pct: float | None = None
    mem_utilization_pct: float | None = None
    sm_clock_mhz: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    temperature_c: float | None = None
    clock_event_reasons: tuple[str, ...] = ()
    processes: tuple[tuple[int, float | None], ...] | None = None
    ecc_uncorrected: int | None = None
    recovery_action: int | None = None
    missing: dict[str, str] = {}


class Failure(msgspec.Struct, frozen=True):
    """Why no board can be read at all."""

    reason: (
        str  # library_not_found | driver_not_loaded | version_mismatch | no_permission | uninitialized | …
    )
    detail: str


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    sweep: int
    driver_version: str | None = None
    boards: tuple[Board, ...] = ()
    xids: tuple[tuple[str, int], ...] = ()  # (uuid, code) of each critical Xid since the sweep before
    failed: Failure | None = None


_encoder = msgspec.json.Encoder()
_asks = msgspec.json.Decoder(Ask)
_sweeps = msgspec.json.Decoder(Sweep)


def write_line(message: Ask | Sweep) -> bytes:
    """One message as the line that goes over the pipe."""
    return _encoder.encode(message) + b"\n"


def read_ask(line: bytes) -> Ask:
    """The agent's question.

    Raises:
        msgspec.DecodeError: not a question; the sampler leaves.
    """
    return _asks.decode(line)


def read_sweep(line: bytes) -> Sweep:
    """The sampler's answer.

    Raises:
        msgspec.DecodeError: not an answer; the agent replaces the sampler.
    """
    return _sweeps.decode(line)
