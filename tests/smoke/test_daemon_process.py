"""The real processes through a daemon's life: start, reload, a kill and its return, an orderly end."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from watchtower.clock import SystemClock
from watchtower.model import RunState
from watchtower.simulate.cluster import Cluster
from watchtower.simulate.inbox import Inbox
from watchtower.simulate.nvml_library import NoCompilerError, build
from watchtower.simulate.processes import Processes
from watchtower.simulate.story import Story
from watchtower.simulate.watcher import Watcher

pytestmark = pytest.mark.slow

# The shortest story that still lets the watcher learn what working looks like; no checkpoint on the way.
STORY = Story(
    nodes=("gpu-a",),
    gpus_per_node=4,
    first_step=3830,
    last_step=3850,
    culprit=3,
    head_start_s=5.0,
    save_step=10**9,
)
CLOCK = SystemClock()


class Scene:
    """One node, its ranks, one watcher and somebody to page."""

    def __init__(self, folder: Path) -> None:
        self.processes = Processes()
        self.inbox = Inbox(CLOCK)
        self.cluster = Cluster(STORY, folder, processes=self.processes, clock=CLOCK)
        self.watcher = Watcher(
            folder,
            self.cluster.nodes,
            slack_url=self.inbox.slack_url,
            pagerduty_url=self.inbox.pagerduty_url,
            processes=self.processes,
            hold_s=6.0,
        )

    def state(self) -> RunState | None:
        return next((run.state for run in self.watcher.runs() or () if run.run_id == STORY.run_id), None)

    def paged(self) -> int:
        return len({message.sink for message in self.inbox.messages()})

    def close(self) -> None:
        self.cluster.end()
        self.processes.close()
        self.inbox.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def wait_for(what: str, condition: Callable[[], bool], log: Path, *, within_s: float) -> None:
    """Look at real processes until something is so; a deadline, never a guess at how long it takes."""
    deadline = CLOCK.monotonic() + within_s
    while not condition():
        assert CLOCK.monotonic() < deadline, f"{what}: not within {within_s} s; {log.read_text()[-3000:]}"
        CLOCK.pause(0.2)


def test_a_daemon_reloads_survives_a_kill_pages_once_and_leaves_in_order(
    scene: Scene, tmp_path: Path
) -> None:
    watcher, log = scene.watcher, scene.watcher.log
    try:
        library: Path | None = build(tmp_path / "lib")
    except NoCompilerError:
        library = None  # the agent's other way in is as good here
    scene.cluster.start_ranks()
    scene.cluster.start_agents(library)
    watcher.start()
    wait_for("progressing", lambda: scene.state() is RunState.PROGRESSING, log, within_s=40)

    before = log.read_text()
    watcher.config.write_text(
        watcher.config.read_text() + '\n[deadman]\nurl_file = "nowhere"\nmisspelt = 1\n'
    )
    watcher.signal(signal.SIGHUP)
    wait_for("a refused reload", lambda: "misspelt" in log.read_text()[len(before) :], log, within_s=20)
    assert watcher.runs() is not None, "a mistake in the settings must not end the daemon"
    watcher.write_settings()
    before = log.read_text()
    watcher.signal(signal.SIGHUP)
    wait_for(
        "a reload", lambda: re.search("reload", log.read_text()[len(before) :]) is not None, log, within_s=20
    )

    wait_for("stuck", lambda: scene.cluster.story_s > STORY.stuck_at + 1, log, within_s=60)
    watcher.kill()
    watcher.start()
    wait_for("the page", lambda: scene.paged() == 2, log, within_s=60)
    watcher.kill()
    watcher.start()
    wait_for("the verdict again", lambda: scene.state() is RunState.DEADLOCKED, log, within_s=30)

    settled = CLOCK.monotonic() + 6  # three rounds in which a second page would come
    wait_for("three rounds", lambda: CLOCK.monotonic() > settled, log, within_s=20)
    # A kill between a provider's yes and our own note of it makes a repeat: dropped by its key, or labelled as one.
    assert sorted(m.sink for m in scene.inbox.messages() if not m.repeat) == ["pagerduty", "slack"]
    assert scene.inbox.refused() == []

    watcher.signal(signal.SIGTERM)
    assert watcher.wait(10) == 0
    assert "Traceback" not in log.read_text()
