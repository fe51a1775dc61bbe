"""Becomes another program that the kernel ends when its starter dies: `python -S -I leash.py STARTER_PID PROGRAM ARGS...`. Imports nothing of ours."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # Source: prctl(2)


def main(arguments: list[str]) -> int:
    """Tie this process to its starter, then become the program; returns only if that cannot be done."""
    starter, *command = arguments
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != int(starter):  # it died before we were tied to it
        return 1
    try:
        os.execvpe(command[0], command, os.environ)  # noqa: S606 - the arguments come from our own code, no shell
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
