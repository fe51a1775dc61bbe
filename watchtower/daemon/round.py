"""One round: what the polls brought is judged, recorded in one transaction, and only then told. Asks no agent and sends nothing itself."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from watchtower.clock import Clock
from watchtower.daemon.store_thread import StoreThread
from watchtower.judge.step import Judge, JudgeStep
from watchtower.metrics import Metrics
from watchtower.model import Observation, RunView
from watchtower.sdnotify import notify
from watchtower.store.records import NumberedIncident, RoundRecord, Transition
from watchtower.store.store import Store

_log = logging.getLogger(__name__)

# Memories and cursors are written this often, and with them all that a kill may cost is asked for again.
SAVE_EVERY_S = 30.0
STALE_ROUNDS = 3


class Polls(Protocol):
    """What a round needs of the polls."""

    def take(self) -> list[Observation]:
        """Every answer since the last call."""
        ...

    def cursors(self) -> tuple[tuple[str, str], ...]:
        """Where the polls stand."""
        ...


class Sends(Protocol):
    """What a round needs of the sender."""

    def wake(self) -> None:
        """There are new rows."""
        ...

    def alive(self) -> bool:
        """It moves."""
        ...


class Rounds:
    """The driver's state between rounds, and what the newest one showed.

    Args:
        sender: replaced at a reload, as are `interval_s` and `sinks`.
    """

    def __init__(
        self,
        *,
        judge: Judge,
        store: Store,
        in_store: StoreThread,
        metrics: Metrics,
        clock: Clock,
        polls: Polls,
        sender: Sends,
        interval_s: float,
        sinks: Sequence[str],
    ) -> None:
        self._judge = judge
        self._store = store
        self._in_store = in_store
        self._metrics = metrics
        self._clock = clock
        self._saved_at: float | None = None
        self.polls = polls
        self.sender = sender
        self.interval_s = interval_s
        self.sinks = tuple(sinks)
        self.idle = asyncio.Event()
        self.idle.set()
        self.last_at: float | None = None
        self._last_monotonic = self._started = clock.monotonic()
        self.views: tuple[RunView, ...] = ()
        self.open_incidents: tuple[NumberedIncident, ...] = ()
        self.outbox_age_s = 0.0
        self.stranded: dict[str, int] = {}  # messages that wait for sinks which the settings no longer name

    async def run(self) -> None:
        """Do one round.

        Raises:
            StoreError: nothing of the round was written; end the process, a fresh one asks and judges it again.
        """
        self.idle.clear()
        try:
            await self._round()
        finally:
            self.idle.set()

    def recall(self, views: tuple[RunView, ...]) -> None:
        """Show what was known before a restart until the first round; blocks on the store, so before the loop turns.

        Args:
            views: the runs as they were last recorded.
        """
        self.views = views
        self._look(self._clock.now())

    async def save(self) -> None:
        """Write everything that a fresh process needs, as of now."""
        now = self._clock.now()
        await self._keep(self._full(RoundRecord(at=now)), now)

    def stale_s(self) -> float | None:
        """Seconds since the newest round (since the start while there was none), once that is too long; else None."""
        age = self._clock.monotonic() - self._last_monotonic
        return age if age > STALE_ROUNDS * self.interval_s else None

    async def _round(self) -> None:
        began = self._clock.monotonic()
        now = self._clock.now()
        self._note_gap(began, now)
        observations = self.polls.take()
        if observations:
            now = max(now, observations[-1].at)
        step = self._judge.step(observations, now)
        self._say(step)
        record = RoundRecord(
            at=step.at,
            views=step.views,
            memories=step.touched,
            forgotten=step.forgotten,
            transitions=tuple(
                Transition(run_id=c.run_id, at=c.at, previous=c.previous, verdict=c.verdict)
                for c in step.changes
            ),
            incidents=step.incidents,
            owed=step.owed,
        )
        if self._saved_at is None or not 0 <= now - self._saved_at < SAVE_EVERY_S:
            record = self._full(record)
            self._saved_at = now
        await self._keep(record, now)
        self.views = tuple(sorted(step.views, key=lambda view: view.run_id))
        self.last_at = now
        self._last_monotonic = self._clock.monotonic()
        if step.owed:
            self.sender.wake()
        self._count(step, now, self._last_monotonic - began)
        if self.sender.alive():
            notify("WATCHDOG=1")

    def _full(self, record: RoundRecord) -> RoundRecord:
        # Memories and cursors belong together: samples that no saved memory holds have to be asked for again.
        return RoundRecord(
            at=record.at,
            views=record.views,
            memories=self._judge.memories(),
            forgotten=record.forgotten,
            cursors=self.polls.cursors(),
            transitions=record.transitions,
            incidents=record.incidents,
            owed=record.owed,
            judge_memory=self._judge.judge_memory(),
        )

    async def _keep(self, record: RoundRecord, now: float) -> None:
        before = self.stranded
        await self._in_store(self._store.record, record)
        await self._in_store(self._look, now)
        for sink in self.stranded.keys() - before.keys():
            _log.warning("sink_removed sink=%s messages_waiting=%d", sink, self.stranded[sink])

    def _look(self, now: float) -> None:
        self.outbox_age_s = self._store.outbox_age(now, self.sinks)
        self.open_incidents = self._store.incidents(open_only=True, limit=1000)
        self.stranded = self._store.stranded(self.sinks)

    def _note_gap(self, monotonic: float, now: float) -> None:
        """Say it when time was lost or the wall clock moved: what follows is judged on observations alone."""
        if self.last_at is None:
            return
        gap_s, wall_s = monotonic - self._last_monotonic, now - self.last_at
        limit_s = STALE_ROUNDS * self.interval_s
        if max(gap_s, wall_s) > limit_s:
            self._metrics.rounds_late.inc()
            _log.warning("round_late gap_s=%.1f wall_s=%.1f interval_s=%g", gap_s, wall_s, self.interval_s)
        elif wall_s < 0 or abs(wall_s - gap_s) > limit_s:
            _log.warning("clock_stepped by_s=%.1f", wall_s - gap_s)

    def _say(self, step: JudgeStep) -> None:
        for trouble in step.troubles:
            self._metrics.judge_troubles.inc()
            _log.error("judge_trouble run=%s\n%s", trouble.run_id, trouble.trace)
        for change in step.changes:
            verdict = change.verdict
            if change.previous is not verdict.state:
                _log.info(
                    "run_state run=%s state=%s previous=%s reason=%r",
                    change.run_id,
                    verdict.state.value,
                    None if change.previous is None else change.previous.value,
                    verdict.reason,
                )
        for notice in step.notices:
            self._metrics.notices.labels(notice.action.value, notice.severity.value).inc()
            _log.info(
                "notice action=%s severity=%s subject=%s state=%s key=%s",
                notice.action.value,
                notice.severity.value,
                notice.subject,
                notice.state.value,
                notice.dedup_key,
            )

    def _count(self, step: JudgeStep, now: float, seconds: float) -> None:
        self._metrics.rounds.inc()
        self._metrics.round_seconds.observe(seconds)
        self._metrics.last_round.set(now)
        self._metrics.outbox_oldest.set(self.outbox_age_s)
        self._metrics.outbox_stranded.set(sum(self.stranded.values()))
