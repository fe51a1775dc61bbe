"""The sampling process, the only one that calls NVML: answers each question with one sweep. Reads no clock, keeps no history.

Run as `python -m watchtower.agent.nvml.child [PROC_ROOT]`; nvml/protocol.py says what goes over the pipe.
"""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from watchtower.agent.nvml import protocol

logger = logging.getLogger(__name__)

_READ_BYTES = 65_536


def main() -> None:
    """Answer until the agent hangs up. Leaves with os._exit: the interpreter's end must not race a driver's own thread."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    proc_root = Path(sys.argv[1] if len(sys.argv) > 1 else "/proc")
    breadcrumb = os.environ.get(protocol.BREADCRUMB_VARIABLE, "")
    status = 1
    try:
        status = _serve(proc_root, int(breadcrumb) if breadcrumb.isdigit() else None)
    except BrokenPipeError:
        status = 0  # the agent has left
    except Exception:
        logger.error("sampler_broke", exc_info=True)  # noqa: G201 - the traceback is what is wanted
    finally:
        os._exit(status)


def _serve(proc_root: Path, breadcrumb_fd: int | None) -> int:
    """Answer every question; returns the exit status."""
    asks = _asks()
    try:
        # Late, so that a missing or a wrong binding is an answer like every other failure.
        from watchtower.agent.nvml import node
    except (ImportError, AttributeError) as error:
        detail = f"the Python package nvidia-ml-py cannot be used: {error}"
        for ask in asks:
            _say(protocol.Sweep(sweep=ask.sweep, failed=protocol.Failure("binding_missing", detail)))
            break
        return 3
    reader = node.NodeReader(breadcrumb_fd, proc_root=proc_root)
    for ask in asks:
        sweep = reader.sweep(ask.sweep)
        _say(sweep)
        if sweep.failed is not None:
            return 3
    return 0


def _asks() -> Iterator[protocol.Ask]:
    """Questions, until the end of standard input."""
    pending = b""
    while True:
        *lines, pending = pending.split(b"\n")
        for line in lines:
            yield protocol.read_ask(line)
        more = os.read(sys.stdin.fileno(), _READ_BYTES)
        if not more:
            return
        pending += more


def _say(sweep: protocol.Sweep) -> None:
    line = memoryview(protocol.write_line(sweep))
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]


if __name__ == "__main__":
    main()
