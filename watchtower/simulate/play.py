"""Plays the founding incident in front of a real watcher, says what happens and what the watcher makes of it, and checks the end. Starts only what it kills."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from watchtower.clock import Clock
from watchtower.model import RunState, RunView
from watchtower.simulate.story import Story

_LOOK_EVERY_S = 0.25
_REPORT_EVERY_S = 10.0
_VERDICT_LIMIT_S = 75.0  # from the moment when all ranks are stuck
_READY_LIMIT_S = 40.0
_QUIET_S = 12.0  # six rounds in which no second page may come
_DOWN_S = 2.0


class Message(msgspec.Struct, frozen=True):
    """One message as it arrived: at which sink, what a person there reads, and whether it only repeats another.

    A daemon that was killed between the provider's yes and its own note of it has to send again: PagerDuty drops the second
    by its key, and on Slack it says that it may be a repeat.
    """

    sink: str
    text: str
    repeat: bool = False


class Stage(Protocol):
    """The simulated nodes, as far as the play needs them."""

    @property
    def story(self) -> Story:
        """What is being told."""
        ...

    @property
    def story_s(self) -> float:
        """Seconds since it began."""
        ...

    def unready(self) -> tuple[str, Path] | None:
        """An agent that does not answer yet: its node and its log; None when all answer."""
        ...


class Daemon(Protocol):
    """The watcher, as far as the play needs it."""

    @property
    def log(self) -> Path:
        """Where it logs."""
        ...

    def start(self) -> None:
        """Start it on the store that it has."""
        ...

    def kill(self) -> None:
        """End it with SIGKILL."""
        ...

    def is_well(self) -> bool:
        """Whether it answers, looks and can tell."""
        ...

    def runs(self) -> tuple[RunView, ...] | None:
        """The runs as it sees them, or None while it does not answer."""
        ...

    def status(self) -> tuple[int, str]:
        """Exit status and words of `watchtower status`."""
        ...


class Mailbox(Protocol):
    """Those who are paged."""

    @property
    def sinks(self) -> Sequence[str]:
        """Their names."""
        ...

    def messages(self) -> Sequence[Message]:
        """All that has arrived, oldest first."""
        ...


class PlayError(Exception):
    """The play did not go as it must; the message is the one sentence to show."""


class Told(msgspec.Struct, kw_only=True):
    """What came of the play, in seconds of the story."""

    verdict_s: float | None = None
    paged_s: dict[str, float] = {}
    kills_s: list[float] = []


class Play:
    """One telling of the story; `run` it once."""

    def __init__(
        self,
        stage: Stage,
        daemon: Daemon,
        mailbox: Mailbox,
        *,
        clock: Clock,
        say: Callable[[str], None],
        kills: bool = False,
    ) -> None:
        self._stage = stage
        self._daemon = daemon
        self._mailbox = mailbox
        self._clock = clock
        self._say = say
        self._kills = kills
        self._told = Told()
        self._state: str | None = None
        self._reported_s = -_REPORT_EVERY_S
        story = stage.story
        self._directions = [
            (
                story.step_done_at(story.save_step),
                f"rank 0 saves a checkpoint of step {story.save_step}, the others wait: healthy",
            ),
            (
                story.onset_at,
                f"rank {story.culprit} has run out of data and waits at the barrier of the last checkpoint",
            ),
            (
                story.stuck_at,
                "all the others have stopped too: 100 % everywhere, a quarter of the power, not a word in any log",
            ),
        ]

    def run(self) -> Told:
        """Play to the end.

        Returns:
            When the verdict and the pages came.

        Raises:
            PlayError: something did not come, came wrong, or came twice.
        """
        self._wait_for_everybody()
        story = self._stage.story
        deadline_s = story.stuck_at + _VERDICT_LIMIT_S
        while not self._has_ended():
            if self._stage.story_s > deadline_s:
                raise PlayError(self._what_is_missing())
            self._look()
            self._clock.pause(_LOOK_EVERY_S)
        self._show_pages()
        self._say(f"\n(waiting {_QUIET_S:.0f} s to see that nothing comes twice)")
        self._clock.pause(_QUIET_S)
        self._show_status()
        self._check_verdict()
        self._check_pages()
        return self._told

    def _wait_for_everybody(self) -> None:
        deadline = self._clock.monotonic() + _READY_LIMIT_S
        while (unready := self._stage.unready()) is not None:
            if self._clock.monotonic() > deadline:
                node, log = unready
                raise PlayError(
                    f"the agent of {node} did not answer within {_READY_LIMIT_S:.0f} s; its log is {log}"
                )
            self._clock.pause(_LOOK_EVERY_S)
        self._wait_for_the_daemon()

    def _wait_for_the_daemon(self) -> None:
        deadline = self._clock.monotonic() + _READY_LIMIT_S
        while not self._daemon.is_well():
            if self._clock.monotonic() > deadline:
                raise PlayError(
                    f"the daemon was not well within {_READY_LIMIT_S:.0f} s; its log is {self._daemon.log}"
                )
            self._clock.pause(_LOOK_EVERY_S)

    def _look(self) -> None:
        now_s = self._stage.story_s
        while self._directions and now_s >= self._directions[0][0]:
            self._line("stage", self._directions.pop(0)[1])
        self._kill_in_the_middle(now_s)
        view = self._view()
        if view is not None:
            self._report(view, now_s)
        for message in self._mailbox.messages():
            if message.sink not in self._told.paged_s:
                self._told.paged_s[message.sink] = now_s
                self._line(message.sink, f"the page has arrived, {self._after_onset(now_s)}")

    def _view(self) -> RunView | None:
        """The run as the daemon sees it now, or None while it does not answer or has not found the run."""
        found = [run for run in self._daemon.runs() or () if run.run_id == self._stage.story.run_id]
        return found[0] if found else None

    def _report(self, view: RunView, now_s: float) -> None:
        changed = view.state != self._state
        if not changed and now_s - self._reported_s < _REPORT_EVERY_S:
            return
        self._state, self._reported_s = view.state, now_s
        ranks = ", ".join(f"{count} {activity}" for activity, count in view.activity.items() if count)
        power = "" if view.power_share is None else f", {view.power_share * 100:.0f} % of working power"
        step = "no step seen yet" if view.step is None else f"step {view.step} of {view.total_steps}"
        self._line("watcher", f"{view.state}: {step}, ranks: {ranks}{power}")
        if view.state == RunState.DEADLOCKED and self._told.verdict_s is None:
            self._told.verdict_s = now_s
            self._line("watcher", f"the verdict, {self._after_onset(now_s)}: {view.reason}")
            for suspect in view.suspects:
                self._line("watcher", f"suspect: rank {suspect.rank} on {suspect.node}, {suspect.why}")

    def _kill_in_the_middle(self, now_s: float) -> None:
        """Kill the daemon once while the deadlock is judged and once right after the first page, if that was asked for."""
        kills = self._told.kills_s
        if not self._kills or len(kills) == 2:
            return
        if kills and not self._told.paged_s:
            return
        if now_s < self._stage.story.stuck_at + 5:
            return
        kills.append(now_s)
        self._line(
            "stage",
            "the daemon is killed with -9" + (" again, right after its page" if len(kills) == 2 else ""),
        )
        self._daemon.kill()
        self._clock.pause(_DOWN_S)
        self._daemon.start()
        self._wait_for_the_daemon()
        self._line("stage", "the daemon is back, on the store that it left")

    def _has_ended(self) -> bool:
        told = self._told
        if self._kills and len(told.kills_s) < 2:
            return False
        return told.verdict_s is not None and set(self._mailbox.sinks) <= set(told.paged_s)

    def _what_is_missing(self) -> str:
        if self._told.verdict_s is None:
            return f"no verdict came within {_VERDICT_LIMIT_S:.0f} s of the deadlock; the daemon's log is {self._daemon.log}"
        silent = sorted(set(self._mailbox.sinks) - set(self._told.paged_s))
        return (
            f"no page reached {' and '.join(silent) or 'everybody'}; the daemon's log is {self._daemon.log}"
        )

    def _show_pages(self) -> None:
        for message in self._mailbox.messages():
            self._say(f"\n--- as {message.sink} received it ---\n{message.text}")

    def _show_status(self) -> None:
        code, text = self._daemon.status()
        self._say(f"\n--- watchtower status (exit status {code}) ---\n{text.rstrip()}")
        if code != 2:
            raise PlayError(f"`watchtower status` left with {code}, and a deadlocked run must make that 2")

    def _check_verdict(self) -> None:
        view = self._view()
        if view is None or view.state != RunState.DEADLOCKED:
            raise PlayError(
                f"the run is deadlocked, and the watcher now says {view.state if view else 'nothing'}"
            )
        named = [suspect.rank for suspect in view.suspects]
        if named != [self._stage.story.culprit]:
            raise PlayError(f"rank {self._stage.story.culprit} is the suspect, and the watcher names {named}")

    def _check_pages(self) -> None:
        for sink in self._mailbox.sinks:
            pages = [
                message for message in self._mailbox.messages() if message.sink == sink and not message.repeat
            ]
            if len(pages) != 1:
                raise PlayError(f"{sink} must be paged exactly once, and got {len(pages)} messages")
            self._names_the_culprit(pages[0])

    def _names_the_culprit(self, page: Message) -> None:
        if f"rank {self._stage.story.culprit}" not in page.text.lower():
            raise PlayError(
                f"the page that reached {page.sink} does not name rank {self._stage.story.culprit}"
            )

    def _after_onset(self, now_s: float) -> str:
        story = self._stage.story
        return f"{now_s - story.onset_at:.0f} s after rank {story.culprit} stopped, {now_s - story.stuck_at:.0f} s after the last one"

    def _line(self, who: str, what: str) -> None:
        minutes, seconds = divmod(int(self._stage.story_s), 60)
        self._say(f"{minutes:02}:{seconds:02}  {who:<9}  {what}")
