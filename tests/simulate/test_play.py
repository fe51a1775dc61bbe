"""The play's own judgement, in virtual time: a watcher that does well passes, and each way of doing badly fails with its sentence."""

from pathlib import Path

import msgspec
import pytest

from tests.fakes.clock import FakeClock
from watchtower.model import RunState, RunView, Suspect
from watchtower.simulate.play import Message, Play, PlayError
from watchtower.simulate.story import Story

STORY = Story()
VERDICT_AT = STORY.stuck_at + 22
PAGE_AT = VERDICT_AT + 2


def view_at(story_s: float, suspects: tuple[int, ...], *, blind: bool) -> RunView:
    stuck = story_s >= VERDICT_AT and not blind
    return RunView(
        run_id=STORY.run_id,
        run_name=None,
        user="jlee",
        labels={},
        state=RunState.DEADLOCKED if stuck else RunState.PROGRESSING,
        since=0.0,
        reason="16 of 16 ranks at 100 % utilization",
        severity=None,
        suspects=tuple(Suspect(rank, "gpu-a", rank, "stopped first") for rank in suspects) if stuck else (),
        evidence=(),
        first_seen_at=0.0,
        updated_at=0.0,
        attempt=0,
        restarts=0,
        world_size=16,
        nodes=STORY.nodes,
        nodes_unseen=(),
        gpus=16,
        gpu_model="B300",
        step=STORY.step_at(story_s),
        total_steps=STORY.total_steps,
        step_at=None,
        step_time_s=None,
        throughput=None,
        throughput_floor=None,
        phase=None,
        power_share=0.3 if stuck else 1.0,
        power_history=(),
        activity={"spinning": 16} if stuck else {"working": 16},
        ranks=(),
        last_checkpoint_at=None,
        last_checkpoint_step=None,
        collective_timeout_s=None,
        progress_source=True,
    )


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How the watcher of one test behaves."""

    suspects: tuple[int, ...] = (3,)
    blind: bool = False
    copies: int = 1  # of each page
    again_after_a_kill: bool = False
    text: str = "deadlocked, suspect rank 3 on gpu-a"
    status: int = 2
    dead_agent: bool = False
    dead_daemon: bool = False
    silent_sink: str | None = None


class World:
    """A stage, a daemon and a mailbox that live on one fake clock."""

    sinks = ("pagerduty", "slack")
    story = STORY
    log = Path("watchtower.log")

    def __init__(self, behaviour: Behaviour) -> None:
        self.clock = FakeClock()
        self._began = self.clock.monotonic()
        self._behaviour = behaviour
        self.down = False
        self.kills: list[float] = []
        self.said: list[str] = []

    @property
    def story_s(self) -> float:
        return self.clock.monotonic() - self._began

    def unready(self) -> tuple[str, Path] | None:
        return ("gpu-b", Path("gpu-b.log")) if self._behaviour.dead_agent else None

    def start(self) -> None:
        self.down = False

    def kill(self) -> None:
        self.down = True
        self.kills.append(self.story_s)

    def is_well(self) -> bool:
        return not self.down and not self._behaviour.dead_daemon

    def runs(self) -> tuple[RunView, ...] | None:
        behaviour = self._behaviour
        return None if self.down else (view_at(self.story_s, behaviour.suspects, blind=behaviour.blind),)

    def status(self) -> tuple[int, str]:
        return self._behaviour.status, "RUN  STATE\nqwen deadlocked"

    def messages(self) -> list[Message]:
        if self.story_s < PAGE_AT or self._behaviour.blind:
            return []
        again = self._behaviour.again_after_a_kill and any(at > PAGE_AT for at in self.kills)
        copies = self._behaviour.copies + again
        told = [Message(sink, self._behaviour.text) for sink in self.sinks for _ in range(copies)]
        return [message for message in told if message.sink != self._behaviour.silent_sink]

    def play(self, *, kills: bool = False) -> Play:
        return Play(self, self, self, clock=self.clock, say=self.said.append, kills=kills)


def test_a_watcher_that_does_well_passes_and_is_timed() -> None:
    world = World(Behaviour())
    told = world.play().run()
    assert told.verdict_s == pytest.approx(VERDICT_AT, abs=0.5)
    assert told.paged_s == {sink: pytest.approx(PAGE_AT, abs=0.5) for sink in world.sinks}
    assert told.kills_s == []


def test_what_happened_and_what_was_made_of_it_is_told_in_order() -> None:
    world = World(Behaviour())
    world.play().run()
    text = "\n".join(world.said)
    order = [
        "progressing: step 3790 of 3857",
        "rank 0 saves a checkpoint",
        "rank 3 has run out of data",
        "all the others have stopped",
        "the verdict, 28 s after rank 3 stopped, 22 s after the last one",
        "suspect: rank 3 on gpu-a",
        "the page has arrived",
        "--- as slack received it ---",
        "--- watchtower status (exit status 2) ---",
    ]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)


def test_the_daemon_is_killed_once_before_the_verdict_and_once_after_the_page() -> None:
    world = World(Behaviour())
    told = world.play(kills=True).run()
    before, after = told.kills_s
    assert STORY.stuck_at < before < VERDICT_AT
    assert PAGE_AT <= after < PAGE_AT + 2


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (Behaviour(blind=True), "no verdict came within 75 s"),
        (Behaviour(silent_sink="slack"), "no page reached slack"),
        (Behaviour(copies=2), "must be paged exactly once, and got 2 messages"),
        (Behaviour(suspects=()), r"rank 3 is the suspect, and the watcher names \[\]"),
        (Behaviour(suspects=(3, 4)), r"the watcher names \[3, 4\]"),
        (Behaviour(text="deadlocked, no culprit visible yet"), "does not name rank 3"),
        (Behaviour(status=0), "`watchtower status` left with 0"),
        (Behaviour(dead_daemon=True), "the daemon was not well within 40 s"),
        (Behaviour(dead_agent=True), "the agent of gpu-b did not answer within 40 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_watcher_that_does_badly_fails_with_a_sentence(behaviour: Behaviour, sentence: str) -> None:
    with pytest.raises(PlayError, match=sentence):
        World(behaviour).play().run()


def test_a_page_that_comes_again_after_a_kill_fails() -> None:
    with pytest.raises(PlayError, match="exactly once"):
        World(Behaviour(again_after_a_kill=True)).play(kills=True).run()
