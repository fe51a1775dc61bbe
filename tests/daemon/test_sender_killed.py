"""A real process that delivers to real sockets, killed with -9 in the middle: the page arrives, and PagerDuty has one incident."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.sinks import an_owed
from watchtower.simulate.receivers import Mode, Receiver

ROOT = Path(__file__).parents[2]
CANARY = "canary5ecret" + "0" * 20
DEADLINE_S = 20.0

# A small daemon: its own store, both real sinks, the real clock. It records the round anew at each start, as a daemon that
# does not know whether its last commit got through would do.
PROGRAM = """
import asyncio, logging, random, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.daemon.test_sender_killed import CANARY
from tests.fakes.sinks import an_owed
from watchtower.clock import SystemClock
from watchtower.daemon.sender import Sender
from watchtower.model import NoticeAction
from watchtower.notify.pagerduty import PagerDutySettings, PagerDutySink
from watchtower.notify.slack import SlackSettings, SlackSink
from watchtower.notify.transport import new_client
from watchtower.store.records import RoundRecord
from watchtower.store.store import Store

async def main(folder, base, messages):
    logging.basicConfig(level=logging.DEBUG)
    clock = SystemClock()
    (folder / "key").write_text(CANARY)
    (folder / "url").write_text(base + "/services/T0/B0/" + CANARY)
    store = Store.open(folder / "data")
    store.requeue_inflight(clock.now())
    actions = [NoticeAction.TRIGGER] + [NoticeAction.UPDATE] * (messages - 2) + [NoticeAction.RESOLVE]
    owed = [an_owed(sink, action, seq=n) for n, action in enumerate(actions[:messages], start=1)
            for sink in ("slack", "pagerduty")]
    store.record(RoundRecord(at=clock.now(), owed=tuple(owed)))
    with ThreadPoolExecutor(1) as thread:
        loop = asyncio.get_running_loop()
        def in_store(call, *args):
            return loop.run_in_executor(thread, call, *args)
        async with new_client() as client:
            sinks = [
                PagerDutySink(PagerDutySettings(routing_key_file=str(folder / "key"), base_url=base), client),
                SlackSink(SlackSettings(url_file=str(folder / "url")), client),
            ]
            for sink in sinks:
                sink.spacing_s = 0.0
            sender = Sender(sinks, store, run_in_store=in_store, clock=clock, random=random.random)
            running = asyncio.create_task(sender.run())
            while await in_store(lambda: sum(row.waiting for row in store.sinks())):
                await clock.sleep(0.02)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    store.close()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
"""


class Daemon:
    """Starts the program, and kills it."""

    def __init__(self, folder: Path, receiver: Receiver, messages: int) -> None:
        self._command = [sys.executable, "-c", PROGRAM, str(folder), receiver.url, str(messages)]
        self._log = (folder / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=environment, stderr=self._log)
        return self._process

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
def start(tmp_path: Path, receiver: Receiver) -> Iterator[Callable[[int], Daemon]]:
    made: list[Daemon] = []

    def build(messages: int) -> Daemon:
        made.append(Daemon(tmp_path, receiver, messages))
        return made[-1]

    yield build
    for daemon in made:
        daemon.close()


def took(receiver: Receiver, provider: str) -> int:
    return sum(message.provider == provider for message in receiver.accepted)


def more_than(requests: int) -> Callable[[Receiver], bool]:
    return lambda receiver: receiver.requests > requests


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.HANG, Mode.ACCEPT_THEN_DROP])
def test_a_kill_while_a_page_is_on_its_way_costs_at_most_a_repeat(
    receiver: Receiver, start: Callable[[int], Daemon], mode: Mode
) -> None:
    receiver.behave("pagerduty", mode)
    receiver.behave("slack", mode)
    daemon = start(1)
    daemon.start()
    assert receiver.wait_for(lambda r: r.requests >= 2, within_s=DEADLINE_S)
    daemon.kill()
    receiver.behave("pagerduty", Mode.OK)
    receiver.behave("slack", Mode.OK)
    assert daemon.start().wait(DEADLINE_S) == 0
    assert receiver.pagerduty.opened == [an_owed().notice.dedup_key]
    assert receiver.refused == []
    repeats = [m.body["text"] for m in receiver.accepted if m.provider == "slack"]
    assert len(repeats) == (1 if mode is Mode.HANG else 2)
    assert "may be a repeat" in repeats[-1]


@pytest.mark.slow
def test_kills_at_many_moments_lose_nothing_and_open_one_incident(
    receiver: Receiver, start: Callable[[int], Daemon]
) -> None:
    daemon = start(4)
    for _ in range(3):
        daemon.start()
        receiver.wait_for(more_than(receiver.requests), within_s=5.0)
        daemon.kill()
    assert daemon.start().wait(DEADLINE_S) == 0
    key = an_owed().notice.dedup_key
    assert receiver.pagerduty.opened == [key]
    assert receiver.pagerduty.resolved == [key]
    assert receiver.pagerduty.open == {}
    assert took(receiver, "slack") >= 2
    assert receiver.refused == []


@pytest.mark.slow
def test_no_secret_reaches_the_log_or_the_database(
    receiver: Receiver, start: Callable[[int], Daemon], tmp_path: Path
) -> None:
    receiver.behave("slack", Mode.ERROR, times=1)
    receiver.behave("pagerduty", Mode.REDIRECT, times=1)
    daemon = start(1)
    daemon.start()
    assert receiver.wait_for(lambda r: took(r, "slack") == 1, within_s=DEADLINE_S)
    daemon.kill()
    assert b"sink_fails" in (tmp_path / "log").read_bytes()
    files = [file for file in (tmp_path / "data").iterdir() if file.is_file()]
    assert any(b"slurm-4411" in file.read_bytes() for file in files)
    for file in [*files, tmp_path / "log"]:
        assert CANARY.encode() not in file.read_bytes(), file.name
