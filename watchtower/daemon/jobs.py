"""The few things that are periodic, on APScheduler: never in parallel with themselves, never in a burst, every failure counted. Decides nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from watchtower.metrics import Metrics

_log = logging.getLogger(__name__)

# Each skipped run would be a line; the counter says it better.
for _noisy in ("apscheduler.scheduler", "apscheduler.executors.default"):
    logging.getLogger(_noisy).setLevel(logging.CRITICAL)

_OUTCOMES = {EVENT_JOB_ERROR: "error", EVENT_JOB_MISSED: "missed", EVENT_JOB_MAX_INSTANCES: "skipped"}


class Jobs:
    """Named jobs, each every so many seconds.

    Args:
        metrics: failures, skipped and missed runs are counted there.
        fatal: called with what an essential job raised.
    """

    def __init__(self, metrics: Metrics, fatal: Callable[[str, BaseException], None]) -> None:
        self._metrics = metrics
        self._fatal = fatal
        self._essential: set[str] = set()
        self._seconds: dict[str, float] = {}
        # Late is better than never: without this a run that is due more than a second ago is dropped.
        self._scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._scheduler.add_listener(
            self._listen, EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES
        )

    def every(
        self, seconds: float, name: str, job: Callable[[], Awaitable[None]], *, essential: bool
    ) -> None:
        """Run a job every so many seconds from now on; one of the same name is replaced.

        Args:
            seconds: between two starts.
            name: its label in metrics.
            job: what to do.
            essential: whether a failure ends the process.
        """
        if essential:
            self._essential.add(name)
        self._seconds[name] = seconds
        self._scheduler.add_job(job, IntervalTrigger(seconds=seconds), id=name, replace_existing=True)

    def drop(self, name: str) -> None:
        """Run this job no longer, if there is one."""
        if self._scheduler.get_job(name) is not None:
            self._scheduler.remove_job(name)

    def rearm(self) -> None:
        """Count every job's time from now: after the wall clock was set back, the old due times lie far ahead."""
        for job in self._scheduler.get_jobs():
            self._scheduler.reschedule_job(job.id, trigger=IntervalTrigger(seconds=self._seconds[job.id]))

    def start(self) -> None:
        """Begin; needs a running loop."""
        self._scheduler.start()

    def pause(self) -> None:
        """Start nothing new; what runs goes on."""
        if self._scheduler.running:
            self._scheduler.pause()

    def stop(self) -> None:
        """End; what still runs is cancelled."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _listen(self, event: JobExecutionEvent) -> None:
        outcome = _OUTCOMES[event.code]
        error = getattr(event, "exception", None)
        if isinstance(error, asyncio.CancelledError):
            return  # by `stop`, and by nobody else
        self._metrics.job_errors.labels(event.job_id, outcome).inc()
        if error is None:
            return
        if event.job_id in self._essential:
            self._fatal(event.job_id, error)
        else:
            _log.error("job_failed job=%s", event.job_id, exc_info=error)
