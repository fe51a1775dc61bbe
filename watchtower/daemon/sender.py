"""Delivers what is owed: one worker per sink claims, renders, sends and settles until the provider says yes. Decides nothing about runs.

A row is in flight before the sink is called and settled after it answered, so a kill between any two statements costs at
most a repeat, never a message. Every wait and every retry is written in the store; a worker remembers only how often it
has failed in a row.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from watchtower.clock import Clock
from watchtower.notify.sink import Form, Outcome, OutcomeKind, Sink
from watchtower.store.records import Delivery, Hold, HoldReason, RowState, Settlement

_log = logging.getLogger(__name__)

BACKOFF_CAP_S = 60.0
PROBE_S = 300.0  # a broken sink, or a message refused in every form, is tried again this often
_IDLE_S = 15.0  # a worker looks at the store this often even when nobody wakes it
# A try ends within 15 s and an idle wait within 15 s; a worker that has not looked round for this long is stuck.
_STUCK_S = 60.0
_ERRORS_BEFORE_SIMPLER = 3  # Slack's `rollup_error` is a 500 that some payloads cause

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RunInStore(Protocol):
    """Runs one store call on the store's own thread."""

    def __call__(self, call: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_R]:
        """Await the call's result; what it raises comes through."""
        ...


class OutboxPort(Protocol):
    """What the sender needs of the store."""

    def claim(self, sink: str, now: float) -> Delivery | None:
        """Take the next message that may be tried now."""
        ...

    def due_in(self, sink: str, now: float) -> float | None:
        """Seconds until `claim` can give something, None while nothing waits."""
        ...

    def settle(self, delivery: Delivery, settlement: Settlement, now: float) -> None:
        """Write down what a try came to."""
        ...


class Sent(msgspec.Struct, frozen=True):
    """One try, for whoever counts them: how long it took, and how long after it was owed a delivered message arrived."""

    sink: str
    action: str
    outcome: OutcomeKind
    send_s: float
    since_owed_s: float


class _Worker:
    """What one sink's worker remembers."""

    def __init__(self, sink: Sink, now: float) -> None:
        self.sink = sink
        self.wake = asyncio.Event()
        self.looked_at = now
        self.failures = 0
        self.trouble: OutcomeKind | None = None


class Sender:
    """All sinks' workers; a sink that hangs never delays another.

    Args:
        sinks: each has a name of its own.
        outbox: called only through `run_in_store`.
        run_in_store: runs one store call at a time.
        clock: wall time for what is stored, monotonic for spacing.
        random: a number in [0, 1), for the jitter.
        observe: told of every try.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        outbox: OutboxPort,
        *,
        run_in_store: RunInStore,
        clock: Clock,
        random: Callable[[], float],
        observe: Callable[[Sent], None] | None = None,
    ) -> None:
        self._outbox = outbox
        self._store = run_in_store
        self._clock = clock
        self._random = random
        self._observe = observe
        self._workers = [_Worker(sink, clock.monotonic()) for sink in sinks]
        self._leaving = False

    async def run(self) -> None:
        """Deliver until cancelled, or until `leave` and what is in flight has been settled.

        Raises:
            ExceptionGroup: the store failed under a worker; end the process, systemd starts it again and nothing is lost.
        """
        async with asyncio.TaskGroup() as tasks:
            for worker in self._workers:
                worker.looked_at = self._clock.monotonic()
                tasks.create_task(self._work(worker), name=f"sender-{worker.sink.name}")

    def wake(self) -> None:
        """Say that the outbox has new rows; from the event loop only."""
        for worker in self._workers:
            worker.wake.set()

    def leave(self) -> None:
        """Begin no new try: `run` ends once those in flight are settled, so that an orderly end repeats nothing."""
        self._leaving = True
        self.wake()

    def alive(self) -> bool:
        """Whether every worker has looked round lately; a sink that fails or is held is alive, a stuck store or send is not."""
        now = self._clock.monotonic()
        return all(now - worker.looked_at < _STUCK_S for worker in self._workers)

    async def _work(self, worker: _Worker) -> None:
        name = worker.sink.name
        while not self._leaving:
            worker.looked_at = self._clock.monotonic()
            worker.wake.clear()
            delivery = await self._store(self._outbox.claim, name, self._clock.now())
            if delivery is None:
                await self._rest(worker)
                continue
            started = self._clock.monotonic()
            outcome = await self._try(worker.sink, delivery)
            took = self._clock.monotonic() - started
            self._note(worker, outcome)
            settlement = settle(
                delivery, outcome, now=self._clock.now(), failures=worker.failures, random=self._random
            )
            if settlement.state is RowState.DEAD:
                _log.error(
                    "message_dead sink=%s incident=%s action=%s detail=%r",
                    name,
                    delivery.owed.notice.incident_uid,
                    delivery.owed.action,
                    outcome.detail,
                )
            now = self._clock.now()
            await self._store(self._outbox.settle, delivery, settlement, now)
            if self._observe is not None:
                since_owed = max(0.0, now - delivery.created_at)
                self._observe(Sent(name, delivery.owed.action, outcome.kind, took, since_owed))
            if not self._leaving:
                await self._clock.sleep(worker.sink.spacing_s)

    async def _rest(self, worker: _Worker) -> None:
        due_in = await self._store(self._outbox.due_in, worker.sink.name, self._clock.now())
        wait = _IDLE_S if due_in is None else min(due_in, _IDLE_S)
        woken = asyncio.create_task(worker.wake.wait())
        slept = asyncio.create_task(self._clock.sleep(max(wait, 0.01)))
        try:
            await asyncio.wait({woken, slept}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            slept.cancel()
            await asyncio.gather(woken, slept, return_exceptions=True)

    async def _try(self, sink: Sink, delivery: Delivery) -> Outcome:
        try:
            body = sink.render(
                delivery.owed,
                Form(delivery.form),
                now=self._clock.now(),
                may_repeat=delivery.ambiguous > 0,
            )
        except Exception as error:  # noqa: BLE001 (a bug in rendering must not make an owed message vanish)
            # The type only: an exception's text may hold what is secret.
            _log.error(
                "render_failed sink=%s form=%d error=%s", sink.name, delivery.form, type(error).__name__
            )
            return Outcome(OutcomeKind.REJECTED, f"bug: rendering raised {type(error).__name__}")
        try:
            return await sink.send(body, delivery.owed.notice.dedup_key)
        except Exception as error:  # noqa: BLE001 (whatever it was, the message may have gone out)
            _log.error("send_failed sink=%s error=%s", sink.name, type(error).__name__)
            return Outcome(OutcomeKind.AMBIGUOUS, f"bug: sending raised {type(error).__name__}")

    def _note(self, worker: _Worker, outcome: Outcome) -> None:
        """Count failures in a row, and log when a sink begins to fail and when it is well again."""
        if outcome.kind is OutcomeKind.REJECTED:
            return  # the sink answers; it is this message that it does not want
        if outcome.kind is OutcomeKind.DELIVERED:
            if worker.trouble is not None:
                _log.warning("sink_well_again sink=%s failures=%d", worker.sink.name, worker.failures)
            worker.failures, worker.trouble = 0, None
            return
        worker.failures += 1
        if outcome.kind is not worker.trouble:
            level = logging.ERROR if outcome.kind is OutcomeKind.BROKEN else logging.WARNING
            _log.log(
                level,
                "sink_fails sink=%s outcome=%s detail=%r",
                worker.sink.name,
                outcome.kind,
                outcome.detail,
            )
            worker.trouble = outcome.kind


def settle(
    delivery: Delivery, outcome: Outcome, *, now: float, failures: int, random: Callable[[], float]
) -> Settlement:
    """What one try's outcome means for the message and for its sink. Pure but for `random`.

    Args:
        delivery: the row as it was claimed.
        outcome: what the sink said.
        now: Unix seconds.
        failures: tries of this sink that failed in a row, this one included.
        random: a number in [0, 1).

    Returns:
        `delivered` only after a definite yes. `dead` only for a message that is refused in its last form while the sink
        has taken another one since. Else `pending`, and where the sink is at fault it is held as a whole, so that a sink
        that is down gets one try per back-off and not one per message; the message tried goes to the end of its queue.
    """
    if outcome.kind is OutcomeKind.DELIVERED:
        return Settlement(state=RowState.DELIVERED, form=delivery.form, detail=outcome.detail)
    if outcome.kind is OutcomeKind.REJECTED:
        return _refused(delivery, outcome, now)
    form = delivery.form
    ambiguous = outcome.kind is OutcomeKind.AMBIGUOUS
    if ambiguous and delivery.others_pass and delivery.attempts >= _ERRORS_BEFORE_SIMPLER:
        # Others pass, so it is this payload that upsets the provider.
        form = min(form + 1, Form.MINIMAL)
    return Settlement(
        state=RowState.PENDING,
        not_before=now,
        form=form,
        ambiguous=ambiguous,
        detail=outcome.detail,
        hold=_hold(outcome, now, failures, random()),
    )


def _hold(outcome: Outcome, now: float, failures: int, jitter: float) -> Hold:
    if outcome.kind is OutcomeKind.BROKEN:
        return Hold(now + PROBE_S, HoldReason.BROKEN)
    backoff_s = min(BACKOFF_CAP_S, 2.0 ** min(failures - 1, 10)) * (0.5 + jitter / 2)
    if outcome.retry_after_s is None:
        return Hold(now + backoff_s, HoldReason.FAILING)
    return Hold(now + max(backoff_s, outcome.retry_after_s), HoldReason.THROTTLED)


def _refused(delivery: Delivery, outcome: Outcome, now: float) -> Settlement:
    if delivery.form < Form.MINIMAL:
        return Settlement(
            state=RowState.PENDING, not_before=now, form=delivery.form + 1, detail=outcome.detail
        )
    if delivery.others_pass:
        return Settlement(state=RowState.DEAD, form=delivery.form, detail=outcome.detail)
    # Refused in every form, and no other message has passed since: the sink itself may be at fault. Keep it, let others try.
    return Settlement(
        state=RowState.PENDING, not_before=now + PROBE_S, form=delivery.form, detail=outcome.detail
    )
