"""What the API is told about runs, incidents and the watcher itself, and what an acknowledgement does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.test_round import Bench, owing
from tests.fakes.reads import incident
from tests.fakes.views import deadlocked_view, run_view
from watchtower.daemon.answers import Answers
from watchtower.model import IncidentPhase, PollFailure
from watchtower.poller.failure import Failed
from watchtower.poller.schedule import PollSchedule
from watchtower.poller.targets import Agent
from watchtower.store.records import RoundRecord
from watchtower.web.answers import AckOutcome
from watchtower.wire import Nvml, Snapshot


class OneAnswer:
    """An asker that always answers the same."""

    answer: Snapshot | Failed = Snapshot(wire=1, node="gpu-a", taken_at=1.0)

    async def ask(self, agent: Agent, cursor: str) -> Snapshot | Failed:
        return self.answer

    async def forget(self, agent: Agent) -> None:
        pass


class Desk(Bench):
    """A bench with the answers on top."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asker = OneAnswer()
        self.schedule = PollSchedule(
            asker=self.asker, clock=self.clock, interval_s=5.0, on_poll=lambda outcome, seconds: None
        )
        self.answers = Answers(
            rounds=self.rounds,
            polls=self.schedule,
            store=self.store,
            in_store=self.in_store,
            judge=self.judge,
            metrics=self.metrics,
            clock=self.clock,
            instance="test",
        )

    async def poll(self) -> None:
        for seat in self.schedule._seats.values():
            await self.schedule._poll(seat)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


async def test_an_acknowledgement_reaches_the_judge_the_store_and_the_status(desk: Desk) -> None:
    desk.judge.next = owing(desk.clock.now())
    await desk.rounds.run()
    number = desk.rounds.open_incidents[0].id
    assert await desk.answers.ack(number, "mira") is AckOutcome.DONE
    assert [taken.acked_by for taken in desk.judge.taken_on] == ["mira"]
    found = await desk.answers.incident(number)
    assert found is not None
    assert found.incident.acked_by == "mira"
    assert found.deliveries is not None
    assert found.deliveries[0].sink == "slack"
    assert desk.answers.status().runs[0]["incident"].acked_by == "mira"


async def test_what_is_over_or_unknown_cannot_be_acknowledged(desk: Desk) -> None:
    assert await desk.answers.ack(99, "mira") is AckOutcome.UNKNOWN
    desk.store.record(
        RoundRecord(at=1.0, incidents=(incident(phase=IncidentPhase.RESOLVED, resolved_at=1.0),))
    )
    assert await desk.answers.ack(1, "mira") is AckOutcome.OVER
    assert desk.judge.taken_on == []


async def test_a_run_that_is_no_longer_watched_is_still_found(desk: Desk) -> None:
    desk.judge.next = owing(desk.clock.now())
    await desk.rounds.run()
    await desk.rounds.run()
    assert desk.answers.runs() == ()
    found = await desk.answers.run("slurm-4411")
    assert found is not None
    assert len(found.run.ranks) == 16
    assert await desk.answers.run("nobody") is None


async def test_agents_are_fresh_for_three_intervals(desk: Desk) -> None:
    await desk.schedule.retarget([Agent("gpu-a", "http://gpu-a:9477")])
    assert desk.answers.fresh() == (1, 0)
    await desk.poll()
    desk.clock.advance(15.0)
    assert desk.answers.fresh() == (1, 1)
    desk.clock.advance(0.1)
    assert desk.answers.fresh() == (1, 0)
    desk.asker.answer = Failed(PollFailure.REFUSED, "nothing listens at gpu-a:9477")
    await desk.poll()
    agent = desk.answers.status().agents[0]
    assert (agent.fresh, agent.failed) == (False, "refused")
    assert agent.failed_detail == "nothing listens at gpu-a:9477"


async def test_each_way_to_be_unwell_has_its_sentence(desk: Desk) -> None:
    assert "no agents" in (desk.answers.unwell() or "")
    await desk.schedule.retarget([Agent("gpu-a", "http://gpu-a:9477")])
    assert "not looked yet" in (desk.answers.unwell() or "")
    await desk.rounds.run()
    assert "its only agent does not answer" in (desk.answers.unwell() or "")
    await desk.poll()
    assert desk.answers.unwell() is None
    assert desk.answers.trouble() is None
    desk.sender.living = False
    assert "sender is stuck" in (desk.answers.unwell() or "")
    desk.clock.advance(16.0)
    assert "no round for 16 s" in (desk.answers.unwell() or "")


async def test_until_the_first_round_the_status_shows_who_was_told_before_the_restart(desk: Desk) -> None:
    desk.judge.next = owing(desk.clock.now())
    await desk.rounds.run()
    desk.rounds.views, desk.rounds.open_incidents = (), ()
    desk.rounds.recall(desk.store.load().views)
    assert desk.answers.status().runs[0]["incident"].told == ("slack", "pagerduty")


async def test_messages_for_a_sink_that_is_no_longer_configured_are_counted_and_named(desk: Desk) -> None:
    desk.judge.next = owing(desk.clock.now())
    desk.rounds.sinks = ()
    await desk.rounds.run()
    assert desk.answers.status().watcher.stranded == {"slack": 1}
    assert desk.answers.status().watcher.outbox_oldest_age_s == 0
    assert b"watchtower_outbox_stranded_messages 1.0" in desk.answers.expose()


async def test_the_dead_mans_switch_hears_of_pages_that_nobody_takes(desk: Desk) -> None:
    await desk.schedule.retarget([Agent("gpu-a", "http://gpu-a:9477")])
    desk.judge.next = owing(desk.clock.now())
    await desk.rounds.run()
    desk.clock.advance(301.0)
    await desk.poll()
    await desk.rounds.run()
    assert desk.answers.unwell() is None
    assert "no provider takes it" in (desk.answers.trouble() or "")


async def test_an_open_incident_is_found_by_the_reference_of_its_pages(desk: Desk) -> None:
    desk.judge.next = owing(desk.clock.now())
    await desk.rounds.run()
    (one,) = desk.rounds.open_incidents
    assert desk.answers.status().runs[0]["incident"].reference == one.incident.uid[:8]
    assert desk.answers.number_of(one.incident.uid[:8]) == one.id
    assert desk.answers.number_of("ffffffff") is None


async def test_an_incident_about_nodes_is_shown_although_it_belongs_to_no_run(desk: Desk) -> None:
    about_nodes = incident(uid="abcdef0123456789", subject="nodes", run_id=None, reason="gpu-b is silent")
    desk.store.record(RoundRecord(at=1.0, incidents=(about_nodes, incident())))
    await desk.rounds.run()
    (shown,) = desk.answers.status().incidents
    assert (shown.reference, shown.subject, shown.reason) == ("abcdef01", "nodes", "gpu-b is silent")


async def test_one_run_in_trouble_comes_with_what_its_page_would_say_now(desk: Desk) -> None:
    desk.rounds.views = (deadlocked_view(), run_view(run_id="well"))
    found = await desk.answers.run("slurm-4411")
    assert found is not None
    said = {line.label: line.text for line in found.page}
    assert set(said) == {"burning", "checkpoint", "NCCL timeout", "first"}
    assert "on gpu-a: py-spy dump --nonblocking --pid 4003" in said["first"]
    assert "a kill costs 50 steps" in said["checkpoint"]
    well = await desk.answers.run("well")
    assert well is not None
    assert well.page == ()


async def test_an_agent_that_cannot_read_its_gpus_says_why(desk: Desk) -> None:
    await desk.schedule.retarget([Agent("gpu-a", "http://gpu-a:9477")])
    gone = Nvml(state="absent", detail="libnvidia-ml.so.1 not found")
    desk.asker.answer = Snapshot(wire=1, node="gpu-a", taken_at=1.0, nvml=gone)
    await desk.poll()
    (agent,) = desk.answers.status().agents
    assert (agent.nvml_state, agent.nvml_detail) == ("absent", "libnvidia-ml.so.1 not found")
