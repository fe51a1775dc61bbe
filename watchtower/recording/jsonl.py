"""Reads and writes recordings: one poll a line, plain, gzip or zstd. Raises one sentence that names file and line; judges nothing."""

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import msgspec
import zstandard

from watchtower.model import PollFailure
from watchtower.wire import Snapshot

RECORDING_VERSION = 1
_READ_AHEAD = 1 << 18


class RecordingError(Exception):
    """A recording cannot be used; the message names the file and the line."""


class RecordedPoll(msgspec.Struct, frozen=True, gc=False):
    """One line: a poll that was answered (`reply`) or one that was not (`failed`). `t` is the watcher's clock."""

    t: float
    node: str
    reply: Snapshot | None = None
    failed: PollFailure | None = None


class _Header(msgspec.Struct, frozen=True):
    recording: int
    note: str = ""


class Recording:
    """A recording being read, poll by poll, in order of `t`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""
        self.truncated: str | None = None  # a sentence, once the last line turned out to be cut short

    def polls(self) -> Iterator[RecordedPoll]:
        """Yield every poll.

        A last line that is cut short (or a compressed stream that ends early) is noted in `truncated`, and what came before
        counts.

        Raises:
            RecordingError: the file cannot be opened, is not a recording, or a line before the last is not a poll.
        """
        decoder = msgspec.json.Decoder(RecordedPoll)
        with _open(self.path) as file:
            lines = self._lines(file)
            self._header(next(lines, (1, b"")))
            last_t = float("-inf")
            for number, line in lines:
                try:
                    poll = decoder.decode(line)
                except msgspec.DecodeError as error:
                    if not line.endswith(b"\n"):
                        self.truncated = (
                            f"{self.path}, line {number}: the last line is cut short and was left out"
                        )
                        return
                    raise RecordingError(
                        f"{self.path}, line {number}: not a recorded poll ({error})"
                    ) from None
                if (poll.reply is None) == (poll.failed is None):
                    raise RecordingError(f"{self.path}, line {number}: a poll has either `reply` or `failed`")
                if poll.t < last_t:
                    raise RecordingError(
                        f"{self.path}, line {number}: `t` goes back ({poll.t} after {last_t})"
                    )
                last_t = poll.t
                yield poll

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        number = 0
        while True:
            try:
                line = file.readline()
            except (EOFError, zstandard.ZstdError, gzip.BadGzipFile, OSError) as error:
                if number == 0:
                    raise RecordingError(
                        f"{self.path}, line 1: cannot be read as {self.path.suffix} ({error})"
                    ) from None
                self.truncated = f"{self.path}, line {number + 1}: the compressed stream ends early; what came before counts"
                return
            if not line:
                return
            number += 1
            yield number, line

    def _header(self, first: tuple[int, bytes]) -> None:
        try:
            header = msgspec.json.decode(first[1], type=_Header)
        except msgspec.DecodeError:
            raise RecordingError(
                f'{self.path}, line 1: not a recording; it has to begin with {{"recording": 1, …}}'
            ) from None
        if header.recording != RECORDING_VERSION:
            raise RecordingError(
                f"{self.path}, line 1: recording version {header.recording}, this watchtower reads version {RECORDING_VERSION}"
            )
        self.note = header.note


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    try:
        raw = path.open("rb")
    except OSError as error:
        raise RecordingError(f"cannot read {path}, line 1: {error.strerror}") from None
    with raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield cast("IO[bytes]", unpacked)
        elif path.suffix == ".zst":
            with zstandard.ZstdDecompressor().stream_reader(
                raw, read_across_frames=True, closefd=False
            ) as stream:
                yield cast("IO[bytes]", io.BufferedReader(cast("io.RawIOBase", stream), _READ_AHEAD))
        else:
            yield raw


class Recorder:
    """A recording being written."""

    def __init__(self, file: IO[bytes], note: str = "") -> None:
        self._file = file
        self._encode = msgspec.json.Encoder().encode
        self._file.write(self._encode({"recording": RECORDING_VERSION, "note": note}) + b"\n")

    def write(self, poll: RecordedPoll) -> None:
        """Append one poll; the caller keeps `t` in order."""
        line: dict[str, object] = {"t": poll.t, "node": poll.node}
        if poll.reply is not None:
            line["reply"] = poll.reply
        else:
            line["failed"] = poll.failed
        self._file.write(self._encode(line) + b"\n")
