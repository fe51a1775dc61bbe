"""One sampling process and the agent's ends of its pipes: start it, ask it, hear it, end it. Decides nothing about when."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from watchtower.agent.nvml import protocol

_READ_BYTES = 65_536


class Ended(msgspec.Struct, frozen=True):
    """In place of an answer: this process will not give one any more."""

    why: str


class Sampler(Protocol):
    """What the reader needs of a sampling process."""

    pid: int

    def ask(self, number: int) -> None:
        """Put a question; the answer comes through answer()."""
        ...

    def answer(self, timeout_s: float) -> protocol.Sweep | Ended | None:
        """Wait so long for an answer; None: nothing yet."""
        ...

    def standing_in(self) -> tuple[int | None, str] | None:
        """(board index or None, call) of the last breadcrumb; None: there is none."""
        ...

    def kernel_state(self) -> str | None:
        """The letter in /proc/PID/stat: `D` is a process that no signal reaches. None once it has left."""
        ...

    def hang_up(self) -> None:
        """Ask it to leave by ending its input."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        ...

    def has_left(self) -> bool:
        """Whether it has ended; reaps it, never waits."""
        ...

    def close(self) -> None:
        """Close our ends of the pipes."""
        ...


class SamplerProcess:
    """A sampling process that has been started.

    Args:
        command: program and arguments.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._breadcrumb_fd = os.memfd_create("watchtower-breadcrumb")
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=(self._breadcrumb_fd,),
                env={**os.environ, protocol.BREADCRUMB_VARIABLE: str(self._breadcrumb_fd)},
                # Away from the terminal's Ctrl-C: the agent says when it ends.
                start_new_session=True,
            )
        except OSError:
            os.close(self._breadcrumb_fd)
            raise
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: both were asked for
        assert self._process.stdout is not None  # noqa: S101
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        self._pending = b""
        self._closed = False
        self.pid = self._process.pid

    def ask(self, number: int) -> None:
        """Put a question; a process that has left is noticed by answer()."""
        with contextlib.suppress(OSError):
            self._stdin.write(protocol.write_line(protocol.Ask(number)))

    def answer(self, timeout_s: float) -> protocol.Sweep | Ended | None:
        """Wait so long for the rest of an answer; a part of a line is kept for the next call.

        Returns:
            The answer; Ended when the process has closed its output or said something else; None when nothing is complete yet.
        """
        if b"\n" not in self._pending:
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, timeout_s))
            if not ready:
                return None
            more = os.read(self._stdout.fileno(), _READ_BYTES)
            if not more:
                return Ended("it ended without an answer")
            self._pending += more
        line, found, rest = self._pending.partition(b"\n")
        if not found:
            too_long = len(self._pending) > protocol.MAX_LINE_BYTES
            return Ended("its answer has no end") if too_long else None
        self._pending = rest
        try:
            return protocol.read_sweep(line)
        except msgspec.DecodeError as error:
            return Ended(f"its answer is not one: {error}")

    def standing_in(self) -> tuple[int | None, str] | None:
        """The call it last said it would make."""
        text = os.pread(self._breadcrumb_fd, protocol.BREADCRUMB_BYTES, 0).decode("ascii", "replace").split()
        if len(text) != 2:
            return None
        return int(text[0]) if text[0].isdigit() else None, text[1]

    def kernel_state(self) -> str | None:
        """The letter in /proc/PID/stat, after the last parenthesis: a name may hold anything."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        return stat.rpartition(")")[2].split()[0]

    def hang_up(self) -> None:
        """End its input; a process that is not inside a call leaves at once."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; to one that has left, none."""
        with contextlib.suppress(OSError):
            self._process.send_signal(number)

    def has_left(self) -> bool:
        """Whether it has ended; reaps it, never waits."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Close our ends; once."""
        if self._closed:
            return
        self._closed = True
        self.hang_up()
        with contextlib.suppress(OSError):
            self._stdout.close()
        os.close(self._breadcrumb_fd)
