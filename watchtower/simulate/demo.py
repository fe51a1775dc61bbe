"""The demo: `python -m watchtower.simulate.demo` sets up two simulated nodes and a real watcher, plays the incident, and cleans up. Judges nothing itself."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from watchtower.clock import Clock, SystemClock
from watchtower.simulate.cluster import Cluster
from watchtower.simulate.inbox import Inbox
from watchtower.simulate.nvml_library import NoCompilerError, build
from watchtower.simulate.play import Play, PlayError, Told
from watchtower.simulate.processes import Processes
from watchtower.simulate.story import Story
from watchtower.simulate.watcher import QUICKER, Watcher


class Demo:
    """Everything that one demo has started or made; `close` leaves nothing behind."""

    def __init__(self, *, clock: Clock) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="watchtower-demo-"))
        self.processes = Processes()
        self.inbox = Inbox(clock)
        self.cluster = Cluster(Story(), self.folder, processes=self.processes, clock=clock)
        self.watcher = Watcher(
            self.folder,
            self.cluster.nodes,
            slack_url=self.inbox.slack_url,
            pagerduty_url=self.inbox.pagerduty_url,
            processes=self.processes,
        )

    def start(self) -> None:
        """Start the ranks, the agents and the daemon; without a C compiler, simulate in place of NVML's reader."""
        try:
            library: Path | None = build(self.folder / "lib")
        except NoCompilerError as error:
            library = None
            say(
                f"{error}\nSo the demo simulates one layer higher: in place of the process that reads NVML, not NVML itself.\n"
            )
        self.cluster.start_ranks()
        self.cluster.start_agents(library)
        self.watcher.start()

    def close(self) -> None:
        """End every process and remove the folder; a second Ctrl-C does not cut this short."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.cluster.end()
        self.processes.close()
        self.inbox.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the demo.

    Returns:
        0 when the deadlock and its rank were named and the page arrived exactly once, 1 with a sentence when not, 130 when
        interrupted.
    """
    options = _options(arguments)
    if not sys.platform.startswith("linux"):
        say("the demo needs Linux: it reads /proc")
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    clock = SystemClock()
    demo = Demo(clock=clock)
    try:
        say(_INTRODUCTION.format(pid=os.getpid(), quicker=QUICKER))
        demo.start()
        play = Play(demo.cluster, demo.watcher, demo.inbox, clock=clock, say=say, kills=options.kill_daemon)
        told = play.run()
        say(f"\n{_conclusion(demo, told)}")
        if options.keep:
            _stay(demo)
    except PlayError as failure:
        say(f"\ndemo: FAILED: {failure}")
        _show_logs(demo)
        return 1
    except KeyboardInterrupt:
        say("\ndemo: cleaning up")
        return 0 if options.keep else 130
    finally:
        demo.close()
    return 0


_INTRODUCTION = """\
Two nodes with eight simulated B300s each fine-tune a 32B model; the run is near its end. Rank processes, logs, agents, daemon
and its store are real. NVML, Slack and PagerDuty are stood in for, and nothing else tells the watcher what happens.
Settings here are faster than the defaults: the watcher {quicker}.
"""

_TO_LOOK_AROUND = """
Everything is still running. Ctrl-C ends it and removes {folder}

  watchtower status --url {url}          (the command is .venv/bin/watchtower in a checkout)
  watchtower status --url {url} --watch
  curl {url}/api/v1/status
  curl {url}/metrics
  curl {agent}/v1/snapshot
  kill a rank:  kill -9 {pid}      (what is sent then is shown here)
  settings, logs, store: {folder}
"""


def say(text: str) -> None:
    """Show one piece of the play at once, also through a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m watchtower.simulate.demo",
        description="Play the founding incident live: a deadlock at step 3850 of 3857, and how it is noticed.",
    )
    parser.add_argument("--keep", action="store_true", help="leave everything running to look around")
    parser.add_argument(
        "--kill-daemon",
        action="store_true",
        help="kill the daemon with -9 in the middle of the deadlock and again right after its page; the page still comes once",
    )
    return parser.parse_args(arguments)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _conclusion(demo: Demo, told: Told) -> str:
    stuck_at = demo.cluster.story.stuck_at
    kills = f", with the daemon killed {len(told.kills_s)} times on the way" if told.kills_s else ""
    pages = ", ".join(f"{sink} {at_s - stuck_at:.0f} s" for sink, at_s in sorted(told.paged_s.items()))
    verdict = "" if told.verdict_s is None else f"{told.verdict_s - stuck_at:.0f} s"
    return (
        f"demo: ok: deadlock and rank {demo.cluster.story.culprit} named {verdict} after the last rank stopped; "
        f"paged exactly once each ({pages}){kills}"
    )


def _stay(demo: Demo) -> None:
    say(
        _TO_LOOK_AROUND.format(
            folder=demo.folder,
            url=demo.watcher.url,
            agent=demo.cluster.nodes[0].url,
            pid=demo.cluster.rank_pid(5),
        )
    )
    shown = len(demo.inbox.messages())
    while True:  # until Ctrl-C; what still arrives is shown
        threading.Event().wait(1.0)
        messages = demo.inbox.messages()
        for message in messages[shown:]:
            say(f"\n--- {message.sink} received ---\n{message.text}")
        shown = len(messages)


def _show_logs(demo: Demo) -> None:
    """The end of each log, since the folder is about to go."""
    for log in sorted(demo.folder.glob("*.log")):
        if not log.name.startswith("rank_"):
            text = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            say(f"--- the end of {log.name} ---\n" + "\n".join(text))


if __name__ == "__main__":
    sys.exit(main())
