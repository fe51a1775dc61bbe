"""One rank of a simulated run: a real process with a rank's environment that does and logs what it is told on standard input. Uses no GPU, decides nothing.

It is run as a plain script (`python -S -I rank.py`), imports only what start-up needs, and sleeps in a read, so that
sixteen of them fit on a laptop. Orders are lines:

    step N TOTAL ELAPSED_S STEP_S   a step is done: rank 0 redraws its progress bar, as tqdm does
    log TEXT                        rank 0 writes this line
    exit CODE                       leave with this status

End of input means that whoever told the story is gone: leave.
"""

import os
import sys

_BAR_CELLS = 10


def bar(step: int, total: int, elapsed_s: float, step_s: float) -> str:
    """A progress bar as tqdm draws it, with the carriage return in front.

    Source: tqdm's default bar format; below one step a second it prints s/it.
    """
    share = step / total
    cells = "█" * int(share * _BAR_CELLS)
    rate = f"{step_s:5.2f}s/it" if step_s >= 1 else f"{1 / step_s:5.2f}it/s"
    times = f"{_clock(elapsed_s)}<{_clock((total - step) * step_s)}"
    return f"\r{share * 100:3.0f}%|{cells:<{_BAR_CELLS}}| {step}/{total} [{times}, {rate}]"


def _clock(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes:02}:{left:02}"


def obey(order: str, *, writes: bool) -> int | None:
    """Carry out one order.

    Args:
        order: one line, as in the module's table.
        writes: whether this rank keeps the trainer's log (rank 0).

    Returns:
        The exit status when told to leave, else None.
    """
    word, _, rest = order.rstrip("\n").partition(" ")
    if word == "exit":
        return int(rest or 0)
    if writes and word == "step":
        step, total, elapsed_s, step_s = rest.split()
        sys.stderr.write(bar(int(step), int(total), float(elapsed_s), float(step_s)))
        sys.stderr.flush()
    elif writes and word == "log":
        sys.stdout.write(f"\n{rest}\n")
        sys.stdout.flush()
    return None


def main() -> int:
    """Obey until told to leave or until the input ends."""
    rank = int(os.environ["RANK"])
    sys.stdout.write(f"[rank{rank}]: ready, pid {os.getpid()}\n")
    sys.stdout.flush()
    for order in sys.stdin:
        status = obey(order, writes=rank == 0)
        if status is not None:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
