"""Plays a recording through the judge in virtual time, round by round, just as the daemon would have. Waits for nothing, tells nobody."""

from collections.abc import Iterator

from watchtower.judge.settings import JudgeSettings
from watchtower.judge.step import Judge, JudgeStep
from watchtower.model import Observation
from watchtower.poller.translate import observe
from watchtower.recording.jsonl import RecordedPoll, Recording

ROUND_S = 5.0


def play(recording: Recording, settings: JudgeSettings, *, round_s: float = ROUND_S) -> Iterator[JudgeStep]:
    """Judge a recording.

    Args:
        recording: read to its end, once.
        settings: what the daemon would have been told; routes may be empty.
        round_s: seconds between two judgements, the daemon's poll interval.

    Yields:
        One step per round of virtual time, also for rounds in which nothing was polled.

    Raises:
        RecordingError: the recording is not valid; what was yielded before stands.
    """
    judge = Judge(settings)
    waiting: list[Observation] = []
    due: float | None = None
    for poll in recording.polls():
        if due is None:
            due = poll.t + round_s
        while poll.t > due:
            yield judge.step(waiting, due)
            waiting = []
            due += round_s
        waiting.append(_observation(poll))
    if due is not None:
        yield judge.step(waiting, due)


def _observation(poll: RecordedPoll) -> Observation:
    if poll.reply is not None:
        return observe(poll.reply, at=poll.t, node=poll.node)
    return Observation(at=poll.t, node=poll.node, failed=poll.failed)
