"""Keeps one sampling process going and says how NVML is: asks, waits, replaces, gives up for a while. Never calls NVML, never
blocks in wait().

A wedged driver keeps its callers in a sleep that no signal ends, so a late answer is a finding and not an error of ours:
we say since when and in which call, wait, and only after a long while end that process and try one other. A process that
cannot be ended is set aside; no more than two are ever left like that.
"""

import logging
import signal
import threading
from collections.abc import Callable

import msgspec

from watchtower import wire
from watchtower.agent.nvml.process import Ended, Sampler
from watchtower.agent.nvml.protocol import Sweep
from watchtower.clock import Clock
from watchtower.model import NvmlState

logger = logging.getLogger(__name__)

_LOOK_S = 0.5  # how long one wait for an answer lasts, and so how late a release or a stop is noticed
_MAX_STUCK = 2  # processes that no signal ends: the first and its one replacement
_TERM_GRACE_S = 10.0
_KILL_GRACE_S = 5.0
_FIRST_BACK_OFF_S = 1.0
_MAX_BACK_OFF_S = 60.0
_LEAVE_S = 1.0  # for a polite end, before signals


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for what, in seconds."""

    interval_s: float = 1.0
    deadline_s: float = 5.0  # an answer later than this means `unresponsive`
    start_deadline_s: float = 30.0  # the first answer: attaching a GPU takes seconds without persistence mode
    end_after_s: float = (
        60.0  # from the question to SIGTERM; ending a process inside a call can make a wedge worse
    )


class NvmlReader:
    """Asks one sampling process for a sweep every interval, in one thread of its own; status() and release() from any.

    Args:
        start: starts a sampling process; may raise OSError.
        deliver: called with every answer that has boards, in the reader's thread.
        clock: the time; all waiting but the pipe's own is on its monotonic side.
        patience: the time limits.
    """

    def __init__(
        self,
        start: Callable[[], Sampler],
        deliver: Callable[[Sweep], None],
        clock: Clock,
        patience: Patience | None = None,
    ) -> None:
        self._start_process = start
        self._deliver = deliver
        self._clock = clock
        self._patience = patience or Patience()
        self._wake = threading.Event()
        self._stopping = False
        self._child: Sampler | None = None
        self._stuck: list[Sampler] = []
        self._number = 0
        self._asked_at: float | None = None  # the question that is not answered yet
        self._answered_once = False  # by this child
        self._signalled: list[tuple[float, signal.Signals]] = []
        self._back_off_s = 0.0
        self._start_at = clock.monotonic()
        self._released_until: float | None = None
        self._driver_version: str | None = None
        self._state = NvmlState.UNRESPONSIVE
        self._detail: str | None = "starting: NVML has not answered yet"
        self._since = clock.monotonic()
        self.turned_at = clock.monotonic()
        self.starts = 0

    # -- what others ask -------------------------------------------------------------------------------------------

    def status(self) -> wire.Nvml:
        """How NVML is now; `since` is the node's wall clock and None while all is well."""
        fine = self._state is NvmlState.OK
        since = None if fine else self._clock.now() - (self._clock.monotonic() - self._since)
        return wire.Nvml(self._state.value, self._driver_version, since, self._detail)

    @property
    def stuck(self) -> int:
        """How many sampling processes no signal could end."""
        return len(self._stuck)

    def release(self, minutes: float) -> None:
        """Let go of the driver for so long, so that it can be reloaded or a GPU reset; 0 takes it up again now."""
        self._released_until = self._clock.monotonic() + minutes * 60
        logger.info("nvml_released minutes=%g", minutes)
        self._wake.set()

    # -- the thread -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn until stop() is called, then end the sampling process; the body of the reader's thread."""
        next_at = self._clock.monotonic()
        while not self._stopping:
            self.turn()
            if self._asked_at is not None:
                continue  # an answer is owed: turn() itself waits on the pipe
            next_at = max(next_at + self._patience.interval_s, self._clock.monotonic())
            self._wake.wait(next_at - self._clock.monotonic())
            self._wake.clear()
        self._let_go()

    def stop(self) -> None:
        """Make run() return soon."""
        self._stopping = True
        self._wake.set()

    def turn(self) -> None:
        """One step: at most one question, and at most half a second of waiting for its answer."""
        self.turned_at = now = self._clock.monotonic()
        self._bury_the_dead()
        if self._is_released(now):
            return
        if self._child is None and not self._begin(now):
            return
        child = self._child
        if child is None:
            return
        if self._asked_at is None:
            self._number += 1
            self._asked_at = now
            child.ask(self._number)
        answer = child.answer(_LOOK_S)
        if isinstance(answer, Ended):
            self._lose(child, answer.why)
        elif answer is not None:
            self._take(child, answer)
        else:
            self._judge_silence(child, self._clock.monotonic() - self._asked_at)

    def _begin(self, now: float) -> bool:
        if now < self._start_at or len(self._stuck) >= _MAX_STUCK:
            return False
        self.starts += 1
        try:
            self._child = self._start_process()
        except OSError as error:
            self._retry_later()
            self._become(NvmlState.ABSENT, f"the sampling process cannot be started: {error}", now)
            return False
        self._answered_once = False
        self._signalled = []
        return True

    def _take(self, child: Sampler, sweep: Sweep) -> None:
        asked_at, self._asked_at = self._asked_at, None
        if sweep.sweep != self._number:
            self._lose(child, f"it answered question {sweep.sweep} instead of {self._number}")
            return
        if sweep.failed is not None:
            failed = f"{sweep.failed.reason}: {sweep.failed.detail}"
            self._become(NvmlState.ABSENT, failed, asked_at)
            self._dismiss(child)
            return
        self._answered_once = True
        self._back_off_s = 0.0
        self._driver_version = sweep.driver_version
        self._become(NvmlState.OK, None, None)
        self._deliver(sweep)

    def _lose(self, child: Sampler, why: str) -> None:
        self._become(NvmlState.UNRESPONSIVE, f"the sampling process is of no use: {why}", self._asked_at)
        self._dismiss(child)

    def _dismiss(self, child: Sampler) -> None:
        """End a process that is answering; what does not leave by itself is killed, and buried in a later turn."""
        child.close()
        if not child.has_left():
            child.signal(signal.SIGTERM)
            self._stuck.append(child)
        self._child = None
        self._asked_at = None
        self._retry_later()

    def _retry_later(self) -> None:
        self._back_off_s = min(_MAX_BACK_OFF_S, self._back_off_s * 2 or _FIRST_BACK_OFF_S)
        self._start_at = self._clock.monotonic() + self._back_off_s

    # -- silence ----------------------------------------------------------------------------------------------------

    def _judge_silence(self, child: Sampler, silent_s: float) -> None:
        patience = self._patience
        if silent_s < (patience.deadline_s if self._answered_once else patience.start_deadline_s):
            return
        where = child.standing_in()
        if where is None:
            call = "the sampling process has not answered"
        else:
            index, name = where
            call = f"{'' if index is None else f'GPU {index}: '}{name} has not returned"
        state = child.kernel_state()
        detail = f"{call} (process {child.pid} in state {state})"
        self._become(NvmlState.UNRESPONSIVE, detail, self._asked_at)
        if silent_s >= patience.end_after_s:
            self._end(child)

    def _end(self, child: Sampler) -> None:
        """SIGTERM, later SIGKILL, later set aside; each once."""
        now = self._clock.monotonic()
        if not self._signalled:
            step, grace_s = signal.SIGTERM, 0.0
        elif len(self._signalled) == 1:
            step, grace_s = signal.SIGKILL, _TERM_GRACE_S
        elif now - self._signalled[-1][0] >= _KILL_GRACE_S:
            logger.error("sampler_cannot_be_ended pid=%d state=%s", child.pid, child.kernel_state())
            self._stuck.append(child)
            self._child = None
            self._asked_at = None
            self._retry_later()
            return
        else:
            return
        if not self._signalled or now - self._signalled[-1][0] >= grace_s:
            logger.warning("sampler_signalled pid=%d signal=%s", child.pid, step.name)
            child.signal(step)
            self._signalled.append((now, step))

    def _bury_the_dead(self) -> None:
        for process in tuple(self._stuck):
            if process.has_left():
                process.close()
                self._stuck.remove(process)
            else:
                process.signal(signal.SIGKILL)

    # -- releasing and ending -----------------------------------------------------------------------------------------

    def _is_released(self, now: float) -> bool:
        until = self._released_until
        if until is None:
            return False
        if now < until:
            if self._child is not None:
                self._let_go()
            left_min = (until - now) / 60
            detail = f"released by an operator, taken up again in {left_min:.0f} min"
            if self._stuck:
                detail += (
                    f"; {len(self._stuck)} sampling process(es) could not be ended and still hold the driver"
                )
            self._become(NvmlState.RELEASED, detail, now)
            return True
        self._released_until = None
        self._start_at = now
        self._back_off_s = 0.0
        return False

    def _let_go(self) -> None:
        """End the sampling process as politely as it allows, in little more than two seconds."""
        child, self._child, self._asked_at = self._child, None, None
        if child is None:
            return
        child.hang_up()
        for step in (None, signal.SIGTERM, signal.SIGKILL):
            if step is not None:
                child.signal(step)
            until = self._clock.monotonic() + _LEAVE_S
            while not child.has_left() and self._clock.monotonic() < until:
                self._clock.pause(0.02)
            if child.has_left():
                child.close()
                return
        self._stuck.append(child)

    def _become(self, state: NvmlState, detail: str | None, since: float | None) -> None:
        """Take up a state; logged when it changes, and its beginning kept while it lasts."""
        changed = state is not self._state
        if changed:
            self._since = self._clock.monotonic() if since is None else since
            log = logger.info if state is NvmlState.OK else logger.warning
            log("nvml_state state=%s previous=%s detail=%s", state.value, self._state.value, detail)
        self._state, self._detail = state, detail
