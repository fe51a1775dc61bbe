"""Writes what a replay came to, as newline-delimited JSON (docs/formats.md section 4) or as lines for people."""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from watchtower.judge.step import Change, JudgeStep
from watchtower.model import Notice, Suspect


def json_lines(step: JudgeStep) -> Iterator[bytes]:
    """The state and notice records of one round, each a line of JSON without its newline."""
    for change in step.changes:
        yield msgspec.json.encode(_state(change))
    for notice in step.notices:
        yield msgspec.json.encode(_notice(notice))


def text_lines(step: JudgeStep) -> Iterator[str]:
    """The same for people: one line a change, one a notice."""
    for change in step.changes:
        verdict = change.verdict
        who = _who(verdict.suspects)
        yield f"{_clock(step.at)}  {change.run_id}  {verdict.state}: {verdict.reason}{who}"
    for notice in step.notices:
        about = notice.run_id or notice.subject
        yield f"{_clock(step.at)}  {about}  -> {notice.action} {notice.severity} ({notice.state})"


def _state(change: Change) -> dict[str, object]:
    verdict = change.verdict
    return {
        "kind": "state",
        "t": change.at,
        "run_id": change.run_id,
        "state": verdict.state,
        "previous": change.previous,
        "since": verdict.since,
        "reason": verdict.reason,
        "suspects": verdict.suspects,
        "evidence": verdict.evidence,
    }


def _notice(notice: Notice) -> dict[str, object]:
    return {
        "kind": "notice",
        "t": notice.at,
        "run_id": notice.run_id,
        "action": notice.action,
        "severity": notice.severity,
        "state": notice.state,
        "dedup_key": notice.dedup_key,
        "reason": notice.reason,
    }


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _who(suspects: tuple[Suspect, ...]) -> str:
    if not suspects:
        return ""
    named = ", ".join(f"rank {s.rank} ({s.node}, GPU {s.gpu_index}): {s.why}" for s in suspects[:4])
    return f" | suspects: {named}" + (f" and {len(suspects) - 4} more" if len(suspects) > 4 else "")
