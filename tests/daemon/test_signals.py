"""Signals that come while a page is on its way: it goes out once, and nobody waits long for the end."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.test_process import CLOCK, Site, wait_for
from tests.fakes.agent import running_agent
from tests.fakes.sinks import an_owed
from watchtower.simulate.receivers import Receiver
from watchtower.store.records import RoundRecord, RowState
from watchtower.store.store import Store

pytestmark = pytest.mark.slow

Reply = tuple[int, dict[str, str], bytes] | None


class Slow(Receiver):
    """Takes a message only once it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = threading.Event(), threading.Event()

    def answer(self, path: str, raw: bytes) -> Reply:
        self.asked.set()
        self.go.wait(30)
        return super().answer(path, raw)


class Paging(Site):
    """A site that owes one page from the start."""

    def owe(self) -> None:
        store = Store.open(self.folder / "store")
        store.record(RoundRecord(at=CLOCK.now(), owed=(an_owed("slack"),)))
        store.close()

    def row(self) -> tuple[RowState, int]:
        """What became of the page; only while no daemon runs."""
        store = Store.open(self.folder / "store")
        (row,) = store.deliveries(an_owed().notice.incident_uid)
        store.close()
        return row.state, row.attempts


@pytest.fixture
def receiver() -> Iterator[Slow]:
    made = Slow()
    with made:
        yield made
        made.go.set()


@pytest.fixture
def site(tmp_path: Path, receiver: Slow) -> Iterator[Paging]:
    with running_agent() as agent:
        made = Paging(tmp_path, agent)
        (tmp_path / "hook").write_text(receiver.slack_url)
        made.owe()
        yield made
        made.close()


def test_a_page_that_is_on_its_way_when_sigterm_comes_arrives_and_is_ticked_off(
    site: Paging, receiver: Slow
) -> None:
    daemon = site.start()
    assert receiver.asked.wait(20)
    daemon.send_signal(signal.SIGTERM)
    wait_for(lambda: site.said("stopping signal"), "the signal")
    receiver.go.set()
    assert daemon.wait(10) == 0
    assert len(receiver.accepted) == 1
    assert site.row() == (RowState.DELIVERED, 1)


def test_a_page_that_hangs_does_not_hold_up_the_end_and_is_owed_afterwards(
    site: Paging, receiver: Slow
) -> None:
    daemon = site.start()
    assert receiver.asked.wait(20)
    began = CLOCK.monotonic()
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(10) == 0
    assert CLOCK.monotonic() - began < 10
    assert site.row() == (RowState.INFLIGHT, 1)


def test_a_page_that_is_on_its_way_when_a_reload_comes_is_not_sent_again(
    site: Paging, receiver: Slow
) -> None:
    daemon = site.start()
    assert receiver.asked.wait(20)
    site.told("READY=1")
    daemon.send_signal(signal.SIGHUP)
    site.told("RELOADING=1")
    receiver.go.set()
    site.told("READY=1")
    assert site.facts()["watcher"]["unwell"] in {None, "it has just started and not looked yet"}
    site.told("WATCHDOG=1")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(10) == 0
    assert [message.provider for message in receiver.accepted] == ["slack"]
    assert site.row() == (RowState.DELIVERED, 1)
