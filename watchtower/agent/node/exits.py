"""Finds out how a rank process ended, where that can be known at all, and publishes each exit once. Reads nothing itself."""

import os

import msgspec

from watchtower import wire

_HOLD_S = 3.0  # what a launcher writes about an exit comes a moment after it
_REMEMBER_S = 60.0


class _Pending(msgspec.Struct):
    exit: wire.Exit
    inner_pid: int
    since_s: float
    known: bool


class Exits:
    """Exits on their way out; told by the kernel (a zombie's status, out-of-memory kills) or by a launcher's log."""

    def __init__(self, *, kernel_log: bool) -> None:
        self._kernel_log = kernel_log  # without it, nothing can be said about out-of-memory kills
        self._pending: list[_Pending] = []
        self._oom: dict[int, float] = {}
        self._said: dict[tuple[str, int], tuple[int, float]] = {}

    def oom_killed(self, pid: int, now_s: float) -> None:
        """The kernel killed this process for its memory."""
        self._oom[pid] = now_s

    def launcher_said(self, run_id: str, pid: int, exit_code: int, now_s: float) -> None:
        """A launcher's log of this run named a process and its exit code (negative: a signal)."""
        self._said[run_id, pid] = (exit_code, now_s)

    def ended(
        self,
        run_id: str,
        rank: int | None,
        *,
        pid: int,
        inner_pid: int,
        wait_status: int,
        at: float,
        now_s: float,
    ) -> None:
        """A rank process has ended; `wait_status` is as wait(2) gives it, negative when not known."""
        code: int | None = None
        signal: int | None = None
        if wait_status >= 0:
            if os.WIFSIGNALED(wait_status):
                signal = os.WTERMSIG(wait_status)
            else:
                code = os.WEXITSTATUS(wait_status)
        ended = wire.Exit(run_id=run_id, pid=pid, at=at, rank=rank, exit_code=code, signal=signal)
        self._pending.append(_Pending(ended, inner_pid, now_s, wait_status >= 0))

    def ready(self, now_s: float) -> list[wire.Exit]:
        """Exits that are known by now, or have waited long enough."""
        out: list[wire.Exit] = []
        waiting: list[_Pending] = []
        for pending in self._pending:
            learned = self._learn(pending)
            if learned is not None or now_s - pending.since_s >= _HOLD_S:
                out.append(self._complete(learned or pending.exit))
            else:
                waiting.append(pending)
        self._pending = waiting
        self._oom = {pid: at for pid, at in self._oom.items() if now_s - at < _REMEMBER_S}
        self._said = {key: said for key, said in self._said.items() if now_s - said[1] < _REMEMBER_S}
        return out

    def _learn(self, pending: _Pending) -> wire.Exit | None:
        ended = pending.exit
        if ended.pid in self._oom:
            return msgspec.structs.replace(ended, exit_code=None, signal=9, oom_killed=True)
        if pending.known:
            return ended
        said = self._said.get((ended.run_id, pending.inner_pid)) or self._said.get((ended.run_id, ended.pid))
        if said is None:
            return None
        code = said[0]
        return msgspec.structs.replace(
            ended, exit_code=code if code >= 0 else None, signal=-code if code < 0 else None
        )

    def _complete(self, ended: wire.Exit) -> wire.Exit:
        how_known = ended.exit_code is not None or ended.signal is not None
        if ended.oom_killed is None and self._kernel_log and how_known:
            return msgspec.structs.replace(ended, oom_killed=False)
        return ended
