"""The one thing the parsers of this room say: a mark, read from one line of a trainer's log. Holds no rule and no raw line."""

from typing import Literal

import msgspec

Phase = Literal["init", "train", "eval", "checkpoint", "finishing"]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a log said: how far the run is, or (when `kind` is set) that something happened.

    `step` is a counter of completed steps. A bar that is printed again makes no mark; a step that comes again with a rate
    does, and a lower one only when the run itself went back. `text` is a sentence of ours with numbers and names that a pattern picked out, never the line.
    """

    step: int | None = None
    total: int | None = None
    throughput: float | None = None
    unit: Literal["tokens/s", "samples/s", "steps/s"] | None = None
    scope: Literal["run", "gpu"] | None = None
    phase: Phase | None = None
    kind: str | None = (
        None  # nccl_timeout | traceback | cuda_oom | launcher_exit | signal | checkpoint_saved | ...
    )
    code: int | None = None
    text: str | None = None
    rank: int | None = None  # the global rank that the line speaks of
    pid: int | None = None  # the process that the line speaks of, in its own pid namespace
    exit_code: int | None = None  # as the launcher prints it: negative for a signal
