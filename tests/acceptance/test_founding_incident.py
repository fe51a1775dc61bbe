"""The founding incident in virtual time: what a person is told, when, and in which words."""

from pathlib import Path

from watchtower.alerts.settings import AlertSettings, Route
from watchtower.judge.settings import JudgeSettings
from watchtower.judge.step import Judge, JudgeStep
from watchtower.model import NoticeAction, Observation, Owed, RunState, Severity
from watchtower.notify.page import write_page
from watchtower.recording.jsonl import Recording
from watchtower.replay.play import play
from watchtower.simulate.story import Story
from watchtower.simulate.telling import observations, write_recording

STORY = Story(step_s=4.7, first_step=3700, save_step=3760, save_s=40.0)
SETTINGS = JudgeSettings(
    alerts=AlertSettings(routes=(Route("slack", Severity.WARNING), Route("pagerduty", Severity.CRITICAL)))
)


def _judged(until_s: float, *, restart_at: float | None = None) -> tuple[float, list[JudgeStep]]:
    """The rounds of the story, five seconds apart; the watcher may be killed and started again in between."""
    judge, waiting, steps = Judge(SETTINGS), list[Observation](), list[JudgeStep]()
    began = next(iter(observations(STORY, until_s=10.0))).at - 5.0
    due = began + 5.0
    for seen in observations(STORY, until_s=until_s):
        while seen.at > due:
            steps.append(judge.step(waiting, due))
            waiting, due = [], due + 5.0
            if restart_at is not None and due - began > restart_at:
                open_ = {i.uid: i for step in steps for i in step.incidents}
                memories, memory = dict(judge.memories()), judge.judge_memory()
                judge, restart_at = Judge(SETTINGS), None
                judge.restore(
                    memories=memories, incidents=tuple(open_.values()), judge_memory=memory, now=due
                )
        waiting.append(seen)
    return began, steps


def _owed(steps: list[JudgeStep]) -> list[Owed]:
    return [message for step in steps for message in step.owed]


def test_the_deadlock_is_named_with_rank_3_between_55_and_90_seconds_after_the_last_rank_stopped() -> None:
    began, steps = _judged(STORY.stuck_at + 300)
    [change] = [c for step in steps for c in step.changes if c.verdict.state is RunState.DEADLOCKED]
    assert 55 <= change.at - began - STORY.stuck_at <= 90
    assert [s.rank for s in change.verdict.suspects] == [3]
    assert abs(change.verdict.since - began - STORY.stuck_at) <= 5


def test_each_sink_is_owed_exactly_one_page() -> None:
    _, steps = _judged(STORY.stuck_at + 3600)
    assert sorted((o.sink, str(o.action)) for o in _owed(steps)) == [
        ("pagerduty", "trigger"),
        ("slack", "trigger"),
    ]


def test_the_healthy_hour_before_pages_nobody() -> None:
    _, steps = _judged(STORY.onset_at)
    assert _owed(steps) == []
    assert {c.verdict.state for step in steps for c in step.changes} <= {
        RunState.STARTING,
        RunState.PROGRESSING,
    }


def test_a_watcher_killed_before_or_after_the_page_still_owes_it_exactly_once() -> None:
    for moment in (STORY.stuck_at + 20, STORY.stuck_at + 100):
        _, steps = _judged(STORY.stuck_at + 600, restart_at=moment)
        assert len(_owed(steps)) == 2, moment


def test_the_page_says_what_a_person_needs_at_three_in_the_morning_in_that_order() -> None:
    _, steps = _judged(STORY.stuck_at + 120)
    message = next(o for o in _owed(steps) if o.sink == "pagerduty")
    assert message.action is NoticeAction.TRIGGER
    page = write_page(message, now=message.notice.at + 2)
    assert page.title.startswith("CRITICAL deadlocked: run torchrun-qwen3-32b-sft")
    words = [
        "since ",
        "step 3850 of 3857",
        "ranks 16 on 2 nodes (gpu-a, gpu-b)",
        "rank 3 on gpu-a",
        "16 of 16 ranks at 100 % utilization",
    ]
    words += ["% of their own working power", "GPU-hours", "checkpoint", "first: "]
    places = [page.summary(5000).find(word) for word in words]
    assert -1 not in places, dict(zip(words, places, strict=True))
    assert places == sorted(places)


def test_its_recording_replays_to_the_same_verdict(tmp_path: Path) -> None:
    path = tmp_path / "incident.jsonl"
    write_recording(STORY, path, until_s=STORY.stuck_at + 120)
    changes = [c for step in play(Recording(path), JudgeSettings()) for c in step.changes]
    assert [str(c.verdict.state) for c in changes][-1] == "deadlocked"
    assert [s.rank for s in changes[-1].verdict.suspects] == [3]
