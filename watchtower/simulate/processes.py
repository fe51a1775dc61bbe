"""Starts real processes for a simulation and ends every one of them, whatever happens. Knows nothing of what they do."""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LEASH = Path(__file__).with_name("leash.py")
_TERM_WAIT_S = 10.0  # within which the agent and the daemon promise to have left


class Processes:
    """Every process of one simulation, each in a process group of its own, ended in reverse order of start."""

    def __init__(self, *, term_wait_s: float = _TERM_WAIT_S) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._term_wait_s = term_wait_s
        atexit.register(self.close)

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str], output: Path, orders: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start one program that dies with us, or rather with the thread that calls this: call it from the main one.

        Args:
            command: the program and its arguments; never a shell line.
            env: its whole environment.
            output: the file, appended to, that it holds open as standard output and standard error.
            orders: whether its standard input is a pipe from us (and its end the sign to leave), else it is empty.
        """
        with output.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-S", "-I", str(_LEASH), str(os.getpid()), *command],
                stdin=subprocess.PIPE if orders else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                start_new_session=True,
            )
        self.adopt(process)
        return process

    def adopt(self, process: subprocess.Popen[bytes]) -> None:
        """Take over the end of a process that leads a process group of its own."""
        self._running.append(process)

    def close(self) -> None:
        """Ask all that still run to leave, wait for each as long as it may take, then kill their groups. May be called twice."""
        atexit.unregister(self.close)
        for process in reversed(self._running):
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            _signal_group(process, signal.SIGTERM)
        while self._running:
            process = self._running.pop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._term_wait_s)
            _signal_group(process, signal.SIGKILL)
            process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the process and what it has started; its group may outlive it, or be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def free_port() -> int:
    """A TCP port on loopback that nobody listens on at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
