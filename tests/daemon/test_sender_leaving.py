"""What the sender does when it is asked to leave: what is in flight is settled, and nothing new begins."""

import asyncio
from pathlib import Path

from tests.daemon.test_sender import UID, build, owe
from tests.fakes.clock import FakeClock
from tests.fakes.sinks import T0, FakeSink, an_owed
from watchtower.store.records import RowState
from watchtower.store.store import Store


async def test_an_orderly_end_settles_what_is_in_flight_and_begins_nothing_new(tmp_path: Path) -> None:
    store, clock = Store.open(tmp_path), FakeClock(T0)
    answers = asyncio.Event()
    hanging = FakeSink("slack", hang=answers)
    resting = FakeSink("pagerduty", spacing_s=1000.0)
    owe(store, an_owed("slack"), an_owed("slack", incident_uid="later"))
    sender = build(store, clock, hanging, resting)
    running = asyncio.create_task(sender.run())
    await clock.sleep(1)
    sender.leave()
    await clock.sleep(1)
    assert not running.done()
    answers.set()
    await clock.sleep(1)
    assert running.done()
    assert [row.state for row in store.deliveries(UID)] == [RowState.DELIVERED]
    assert [row.state for row in store.deliveries("later")] == [RowState.PENDING]
    assert store.requeue_inflight(clock.now()) == 0
    store.close()
