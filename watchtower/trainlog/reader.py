"""Reads one log from bytes to marks, whatever trainer wrote it; the strongest source of steps in the log wins. Opens no file."""

from collections.abc import Callable

import msgspec

from watchtower.trainlog import hf, megatron, phases, plain, torchtitan
from watchtower.trainlog.bars import TrainingBar
from watchtower.trainlog.deepspeed import DeepSpeed
from watchtower.trainlog.failures import Failures
from watchtower.trainlog.lines import Record, RecordSplitter
from watchtower.trainlog.marks import Mark
from watchtower.trainlog.nanogpt import NanoGpt

# Most lines of most logs hold none of these, and then nothing here reads them: looking for a word is twenty times cheaper.
_HINTS = (
    "step",
    "Step",
    "STEP",
    "iter",
    "Iter",
    "ITER",
    "%|",
    "{'",
    '{"',
    "poch",
    "heckpoint",
    "alid",
    "eval",
    "Eval",
    "kernels",
    "Skipping",
    "Resum",
    "resum",
    "Continuing",
    "exit",
    "Traceback",
    "atchdog",
    "CUDA",
    "OutOfMemory",
    "Segmentation",
    "Fatal",
    "signal",
    "Root",
    "Failures",
    "===",
    "rank",
    "srun",
    "slurmstepd",
    "oom",
    "OOM",
    "SIGTERM",
    "SamplesPerSec",
    "tokens",
    "Training ",
    "training is",
    "Trainer.fit",
    "train metrics",
)
_LARGEST_STEP = 10**9  # a "step" beyond this is a number that happened to stand there


class LogReader:
    """One log, followed from wherever it was opened. A file that began anew (rotated, truncated) gets a new reader.

    Sources of steps, weakest first: a plain counter, DeepSpeed's engine (which may print once in 2000 steps), a bar, a
    trainer's own line. Once a stronger one has spoken the weaker ones are no longer believed: two counters that differ by
    one would go up and down.
    """

    def __init__(self) -> None:
        self._splitter = RecordSplitter()
        self._bar = TrainingBar()
        self._failures = Failures()
        deepspeed, nanogpt = DeepSpeed(), NanoGpt()
        self._trainers: tuple[tuple[int, Callable[[str], Mark | None]], ...] = (
            (4, megatron.read),
            (4, torchtitan.read),
            (4, nanogpt.read),
            (2, deepspeed.read),
            (1, plain.read),
        )
        self._strength = 0
        self._step: int | None = None
        self._total: int | None = None
        self._phase: str | None = None

    def feed(self, data: bytes) -> list[Mark]:
        """Add what was appended to the log, in any chunks.

        Returns:
            What it says, in order; empty for lines nobody understands. Steps only when they changed, phases only when they
            changed. Never raises, whatever the bytes are.
        """
        marks: list[Mark] = []
        for record in self._splitter.feed(data):
            self._read(record, marks)
        unfinished = self._splitter.unfinished()
        if unfinished is not None:
            self._accept(self._bar.read(unfinished.text), 3, marks)
        return marks

    def _worth_reading(self, text: str) -> bool:
        return text.startswith("s:") or any(hint in text for hint in _HINTS) or self._failures.expecting

    def _read(self, record: Record, marks: list[Mark]) -> None:
        text = record.text
        if not self._worth_reading(text):
            return
        self._accept(self._bar.read(text), 3, marks)
        if logged := hf.pairs(text):
            if "loss" in logged or "reward" in logged:
                self._bar.confirm()
            self._accept(hf.read(logged), 4, marks)
        else:
            for strength, read in self._trainers:
                if (mark := read(text)) is not None:
                    self._accept(mark, strength, marks)
                    break
        self._accept(phases.read(text), 0, marks)
        self._accept(self._failures.read(record), 0, marks)

    def _accept(self, mark: Mark | None, strength: int, marks: list[Mark]) -> None:
        if mark is None:
            return
        if self._phase == "finishing" and mark.phase != "finishing":
            # After the end come a last evaluation and save; only a step says that training began again.
            if mark.step is None and mark.kind is None:
                return
            mark = mark if mark.step is not None else msgspec.structs.replace(mark, phase=None)
        if mark.kind is not None:
            self._phase = mark.phase or self._phase
            marks.append(mark)
            return
        if mark.step is not None:
            if strength < self._strength or mark.step > _LARGEST_STEP:
                return
            if mark.step:  # a zero at start is no proof that this source will go on
                self._strength = strength
            self._total = mark.total or self._total
            if mark.step == self._step and mark.throughput is None:
                mark = msgspec.structs.replace(mark, step=None, total=None)
            else:
                self._step = mark.step
                mark = msgspec.structs.replace(mark, total=self._total)
        if mark.step is None and mark.throughput is None and mark.phase in (None, self._phase):
            return
        self._phase = mark.phase or self._phase
        marks.append(mark)
