"""The periodic jobs: a failure is counted, an essential one is passed on, none runs beside itself."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from watchtower.clock import SystemClock
from watchtower.daemon.jobs import Jobs
from watchtower.metrics import Metrics

SOON_S = 0.02


class Bench:
    def __init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry(), version="0", instance="test")
        self.fatal: asyncio.Queue[tuple[str, BaseException]] = asyncio.Queue()
        self.jobs = Jobs(self.metrics, lambda name, error: self.fatal.put_nowait((name, error)))

    def counted(self, job: str, outcome: str) -> float:
        return float(self.metrics.job_errors.labels(job, outcome)._value.get())


async def test_an_essential_job_that_fails_is_passed_on() -> None:
    bench = Bench()

    async def broken() -> None:
        raise OSError("planted")

    bench.jobs.every(SOON_S, "round", broken, essential=True)
    bench.jobs.start()
    async with asyncio.timeout(10):
        name, error = await bench.fatal.get()
    bench.jobs.stop()
    assert (name, str(error)) == ("round", "planted")
    assert bench.counted("round", "error") >= 1


async def test_a_job_that_the_end_cuts_short_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    begun = asyncio.Event()

    async def hanging() -> None:
        begun.set()
        await asyncio.Event().wait()

    for name, essential in (("round", True), ("deadman", False)):
        begun.clear()
        bench.jobs.every(SOON_S, name, hanging, essential=essential)
        if name == "round":
            bench.jobs.start()
        async with asyncio.timeout(10):
            await begun.wait()
    bench.jobs.stop()
    for _ in range(10):
        await SystemClock().sleep(0)
    assert bench.fatal.empty()
    assert bench.counted("round", "error") == bench.counted("deadman", "error") == 0
    assert "job_failed" not in caplog.text


async def test_another_job_that_fails_is_counted_and_goes_on() -> None:
    bench = Bench()
    third = asyncio.Event()
    runs = 0

    async def broken() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            third.set()
        raise OSError("planted")

    bench.jobs.every(SOON_S, "targets", broken, essential=False)
    bench.jobs.start()
    async with asyncio.timeout(10):
        await third.wait()
    bench.jobs.stop()
    assert bench.fatal.empty()
    assert bench.counted("targets", "error") >= 2


async def test_a_job_never_runs_beside_itself_and_what_is_skipped_is_counted() -> None:
    bench = Bench()
    release, running = asyncio.Event(), 0
    most = 0

    async def slow() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1

    seen = asyncio.Event()

    async def look() -> None:
        if bench.counted("round", "skipped") >= 2:
            seen.set()

    bench.jobs.every(SOON_S, "round", slow, essential=True)
    bench.jobs.every(SOON_S, "look", look, essential=False)
    bench.jobs.start()
    async with asyncio.timeout(10):
        await seen.wait()
    release.set()
    bench.jobs.stop()
    assert most == 1


async def test_rearmed_jobs_are_due_one_interval_from_now() -> None:
    bench = Bench()
    ran = asyncio.Event()

    async def job() -> None:
        ran.set()

    bench.jobs.every(SOON_S, "round", job, essential=True)
    bench.jobs.start()
    far = bench.jobs._scheduler.get_job("round")
    far.modify(next_run_time=far.next_run_time.replace(year=far.next_run_time.year + 1))
    bench.jobs.rearm()
    async with asyncio.timeout(10):
        await ran.wait()
    bench.jobs.stop()


async def test_a_dropped_job_runs_no_more() -> None:
    bench = Bench()

    async def job() -> None: ...

    bench.jobs.every(SOON_S, "deadman", job, essential=False)
    bench.jobs.drop("deadman")
    bench.jobs.drop("deadman")
    assert bench.jobs._scheduler.get_jobs() == []
