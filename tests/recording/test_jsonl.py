"""Recordings that are whole, cut short, or not recordings at all."""

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from watchtower.model import PollFailure
from watchtower.recording.jsonl import RecordedPoll, Recorder, Recording, RecordingError
from watchtower.wire import Snapshot

POLLS = [
    RecordedPoll(10.0, "gpu-a", reply=Snapshot(wire=1, node="gpu-a", taken_at=9.9)),
    RecordedPoll(10.5, "gpu-b", failed=PollFailure.TIMEOUT),
    RecordedPoll(15.0, "gpu-a", reply=Snapshot(wire=1, node="gpu-a", taken_at=14.9)),
]


def _plain() -> bytes:
    out = io.BytesIO()
    recorder = Recorder(out, "three polls")
    for poll in POLLS:
        recorder.write(poll)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("r.jsonl", bytes),
        ("r.jsonl.gz", gzip.compress),
        ("r.jsonl.zst", zstandard.compress),
    ],
)
def test_what_was_written_is_read_back(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / name).write_bytes(pack(_plain()))
    recording = Recording(tmp_path / name)
    assert list(recording.polls()) == POLLS
    assert (recording.note, recording.truncated) == ("three polls", None)


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_last_line_cut_short_is_reported_and_the_rest_counts(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(_plain()[:-cut] if cut > 1 else _plain()[:-2])
    recording = Recording(path)
    assert list(recording.polls()) == POLLS[:2]
    assert recording.truncated is not None
    assert f"{path}, line 4" in recording.truncated


def _zst_by_line(data: bytes) -> bytes:
    out = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as stream:
        for line in data.splitlines(keepends=True):
            stream.write(line[: len(line) // 2])
            stream.flush(zstandard.FLUSH_BLOCK)
            stream.write(line[len(line) // 2 :])
            stream.flush(zstandard.FLUSH_BLOCK)
    return out.getvalue()


@pytest.mark.parametrize(("name", "pack"), [("r.jsonl.gz", gzip.compress), ("r.jsonl.zst", _zst_by_line)])
def test_a_compressed_stream_cut_short_counts_up_to_the_cut(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    (tmp_path / name).write_bytes(pack(_plain())[:-12])
    recording = Recording(tmp_path / name)
    assert list(recording.polls()) == POLLS[:2]
    assert recording.truncated is not None
    assert "line 4" in recording.truncated


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "line 1: not a recording"),
        (b"hello\n", "line 1: not a recording"),
        (b'{"recording": 2}\n', "line 1: recording version 2"),
        (b'{"recording": 1}\n{"t": 1, "node": "a"}\n', "line 2: a poll has either"),
        (b'{"recording": 1}\n{"t": 1, "node": "a", "failed": "tired"}\n', "line 2: not a recorded poll"),
        (
            b'{"recording": 1}\n{"t": 2, "node": "a", "failed": "timeout"}\n{"t": 1, "node": "a", "failed": "timeout"}\n',
            "line 3: `t` goes back",
        ),
        (
            b'{"recording": 1}\n\xff\xfe\n{"t": 1, "node": "a", "failed": "timeout"}\n',
            "line 2: not a recorded poll",
        ),
    ],
)
def test_what_is_no_recording_is_refused_with_file_and_line(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(text)
    with pytest.raises(RecordingError, match=says) as error:
        list(Recording(path).polls())
    assert str(path) in str(error.value)


def test_a_missing_file_and_a_lying_suffix_are_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        list(Recording(tmp_path / "none.jsonl").polls())
    for suffix in ("gz", "zst"):
        (tmp_path / f"r.jsonl.{suffix}").write_bytes(b"plain text\n")
        with pytest.raises(RecordingError, match="line 1"):
            list(Recording(tmp_path / f"r.jsonl.{suffix}").polls())
