"""The replay command as a user runs it: its records, its exit status, its sentences."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from watchtower.cli.main import app
from watchtower.simulate.story import Story
from watchtower.simulate.telling import write_recording

STORY = Story()
STATE_FIELDS = {"kind", "t", "run_id", "state", "previous", "since", "reason", "suspects"}
NOTICE_FIELDS = {"kind", "t", "run_id", "action", "severity", "state", "dedup_key"}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "incident.jsonl"
    write_recording(STORY, path, until_s=STORY.stuck_at + 120)
    return path


def _replay(*words: object) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, words)])


def test_json_is_one_record_a_line_in_order_with_every_promised_field(recording: Path) -> None:
    done = _replay(recording, "--format", "json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert [r["t"] for r in records] == sorted(r["t"] for r in records)
    assert all(r.keys() >= STATE_FIELDS for r in records if r["kind"] == "state")
    assert all(r.keys() >= NOTICE_FIELDS for r in records if r["kind"] == "notice")
    assert records[0]["previous"] is None
    [page] = [r for r in records if r["kind"] == "notice"]
    assert (page["action"], page["severity"], page["state"]) == ("trigger", "critical", "deadlocked")
    assert [s["rank"] for s in records[-2]["suspects"]] == [3]


def test_text_is_readable(recording: Path) -> None:
    done = _replay(recording)
    assert done.exit_code == 0
    assert "deadlocked: 16 of 16 ranks at 100 % utilization" in done.stdout
    assert "rank 3 (gpu-a, GPU 3)" in done.stdout


def test_a_configuration_changes_what_is_said(recording: Path, tmp_path: Path) -> None:
    config = tmp_path / "watchtower.toml"
    config.write_text("[judge]\ndeadlock_hold_s = 600\n")
    done = _replay(recording, "--config", config, "--format", "json")
    assert done.exit_code == 0
    assert "deadlocked" not in done.stdout


def test_a_configuration_of_comments_alone_is_valid(recording: Path, tmp_path: Path) -> None:
    config = tmp_path / "watchtower.toml"
    config.write_text("# nothing needs saying here\n")
    assert _replay(recording, "--config", config).exit_code == 0


def test_a_cut_last_line_is_reported_on_standard_error_and_the_rest_counts(recording: Path) -> None:
    recording.write_bytes(recording.read_bytes()[:-30])
    done = _replay(recording, "--format", "json")
    assert done.exit_code == 0
    assert "cut short" in done.stderr
    assert "deadlocked" in done.stdout


@pytest.mark.parametrize("content", [b"", b"not a recording\n", b'{"recording": 1}\n{}\n{}\n'])
def test_what_is_no_recording_is_one_sentence_with_file_and_line_and_exit_2(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    done = _replay(path, "--format", "json")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{path}, line ")
    assert done.stderr.count("\n") == 1


def test_a_wrong_key_in_the_configuration_is_named_and_exits_2(recording: Path, tmp_path: Path) -> None:
    config = tmp_path / "watchtower.toml"
    config.write_text("[judge]\ndeadlock_hold = 60\n")
    done = _replay(recording, "--config", config)
    assert done.exit_code == 2
    assert "deadlock_hold" in done.stderr
    assert "deadlock_hold_s" in done.stderr
