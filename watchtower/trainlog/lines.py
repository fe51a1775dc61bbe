"""Cuts a byte stream into records and takes off what launchers put in front. Understands no trainer."""

import codecs
import re

import msgspec

MAX_RECORD_CHARS = 4096  # of a longer record only the end is kept: the newest bar is there
_MAX_LAYERS = 4

_BREAK = re.compile(r"[\r\n]+")
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]{0,32}[ -/]{0,4}[@-~]|\x1b\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|\x08{1,4096}"
)
# `torchrun --tee 3` glues records: a prefix in the middle of a line begins a new one.
_GLUED = re.compile(r"(?=\[(?:default|rank)\d{1,6}\]:)")
_CRI = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{8,24}(?:Z|[+-]\d\d:?\d\d) std(?:out|err) ([FP]) ?")
_LAYERS = (
    re.compile(r"\[\d{1,6},(?P<rank>\d{1,6})\]<std(?:out|err)>:\s?"),  # mpirun --tag-output
    re.compile(
        r"\[(?P<role>[A-Za-z_][A-Za-z_-]{0,40})(?P<rank>\d{1,6})\]:\s?"
    ),  # torchrun --tee, torch's own C++ logs
    re.compile(r"\([\w.:-]{1,80} pid=\d{1,10}(?:, ip=[\d.]{1,40})?\)\s?"),  # Ray
    re.compile(r"\s{0,4}(?P<rank>\d{1,5}):\s(?=.)"),  # srun --label
)


class Record(msgspec.Struct, frozen=True):
    """One line as its author wrote it, without prefixes."""

    text: str
    source: int | None = None  # the number in the innermost prefix: tells the writers of one log apart
    rank: int | None = None  # the global rank, from prefixes that print that one (torch's own, mpirun)


class RecordSplitter:
    """Turns chunks, cut anywhere, into records; keeps at most one unfinished record of bounded length."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._tail = ""
        self._partial = ""  # of a container log that says "to be continued"

    def feed(self, data: bytes) -> list[Record]:
        """Add bytes; returns the records that they finished, oldest first, empty ones left out."""
        pieces = _BREAK.split(self._tail + self._decoder.decode(data))
        self._tail = pieces.pop()[-MAX_RECORD_CHARS:]
        records: list[Record] = []
        for piece in pieces:
            records.extend(self._finish(piece))
        return records

    def unfinished(self) -> Record | None:
        """The record that has not ended yet. A bar begins with a carriage return, so the newest one is always here."""
        found = [strip(piece) for piece in _GLUED.split(_clean(self._partial + self._tail)) if piece]
        return found[-1] if found else None

    def _finish(self, piece: str) -> list[Record]:
        piece = _clean(piece[-MAX_RECORD_CHARS:])
        if found := _CRI.match(piece):
            piece = piece[found.end() :]
            joined = (self._partial + piece)[-MAX_RECORD_CHARS:]
            if found.group(1) == "P":
                self._partial = joined
                return []
            self._partial, piece = "", joined
        stripped = (strip(part) for part in _GLUED.split(piece))
        return [record for record in stripped if record.text.strip()]


def strip(piece: str) -> Record:
    """Take up to four layers of launcher prefixes off one line."""
    source: int | None = None
    rank: int | None = None
    at = 0
    for _ in range(_MAX_LAYERS):
        found = next((match for layer in _LAYERS if (match := layer.match(piece, at))), None)
        if found is None:
            break
        at = found.end()
        names = found.groupdict()
        if "rank" in names:
            source = int(names["rank"])
            if names.get("role") == "rank" or found.group().endswith((">:", ">: ")):
                rank = source
    return Record(piece[at:], source, rank)


def _clean(piece: str) -> str:
    return _CONTROL.sub("", piece) if "\x1b" in piece or "\x08" in piece else piece
