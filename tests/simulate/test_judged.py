"""The story is one that the real judge can tell from health: in virtual time, with the demo's and with the default settings."""

import pytest

from watchtower.judge.settings import JudgeSettings
from watchtower.judge.step import Change, Judge
from watchtower.model import RunState
from watchtower.simulate.story import Story
from watchtower.simulate.telling import observations

BEGAN_AT = 1_764_540_000.0


def judged(story: Story, settings: JudgeSettings, *, until_s: float, interval_s: float) -> list[Change]:
    judge = Judge(settings)
    judge.expect(story.nodes)
    told = observations(story, until_s=until_s, interval_s=interval_s, began_at=BEGAN_AT)
    return [change for seen in told for change in judge.step([seen], seen.at).changes]


@pytest.mark.parametrize(
    ("settings", "interval_s", "within_s"),
    [(JudgeSettings(deadlock_hold_s=20.0), 2.0, 30.0), (JudgeSettings(), 5.0, 90.0)],
    ids=["demo", "defaults"],
)
def test_the_judge_names_the_deadlock_and_rank_3(
    settings: JudgeSettings, interval_s: float, within_s: float
) -> None:
    story = Story()
    until_s = story.stuck_at + 2 * within_s
    changes = judged(story, settings, until_s=until_s, interval_s=interval_s)
    assert [change.verdict.state for change in changes] == [RunState.PROGRESSING, RunState.DEADLOCKED]
    deadlock = changes[-1].verdict
    assert deadlock.at - BEGAN_AT - story.stuck_at <= within_s
    assert [suspect.rank for suspect in deadlock.suspects] == [story.culprit]


def test_the_judge_says_nothing_of_the_healthy_save() -> None:
    story = Story()
    changes = judged(story, JudgeSettings(deadlock_hold_s=20.0), until_s=story.onset_at, interval_s=2.0)
    assert [change.verdict.state for change in changes] == [RunState.PROGRESSING]
