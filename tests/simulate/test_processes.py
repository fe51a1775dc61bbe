"""No process of a simulation outlives it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from watchtower.clock import SystemClock
from watchtower.simulate.processes import Processes, free_port

ENV = {"PATH": os.environ["PATH"]}
SAYS_READY = "import signal; print('ready', flush=True); "


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()


def wait_for(condition: object, *, within_s: float = 20.0) -> None:
    """Look until something real has happened; real processes only."""
    assert callable(condition)
    clock = SystemClock()
    deadline = clock.monotonic() + within_s
    while not condition():
        assert clock.monotonic() < deadline
        clock.pause(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_process_holds_its_log_open_and_gets_its_environment(processes: Processes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = "import os, sys; print(os.environ['WORD'], os.readlink('/proc/self/fd/1'))"
    process = processes.start([sys.executable, "-c", program], env={**ENV, "WORD": "hello"}, output=log)
    assert process.wait(20) == 0
    assert log.read_text() == f"hello {log}\n"


def test_closing_ends_a_process_that_ignores_the_polite_way(processes: Processes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = SAYS_READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    process = processes.start([sys.executable, "-c", program], env=ENV, output=log)
    wait_for(lambda: log.stat().st_size > 0)
    quick = Processes(term_wait_s=0.2)
    quick.adopt(process)
    quick.close()
    assert process.returncode == -signal.SIGKILL


def test_closing_ends_what_a_process_has_started(processes: Processes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import subprocess, sys, signal; "
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
        "print(child.pid, flush=True); signal.pause()"
    )
    processes.start([sys.executable, "-c", program], env=ENV, output=log)
    wait_for(lambda: log.read_text().endswith("\n"))
    child = int(log.read_text())
    assert is_running(child)
    processes.close()
    wait_for(lambda: not is_running(child))


def test_a_process_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    starter = (
        "import os, signal, sys; from pathlib import Path; "
        "from watchtower.simulate.processes import Processes; "
        f"p = Processes().start([sys.executable, '-c', {SAYS_READY + 'signal.pause()'!r}], "
        f"env=dict(os.environ), output=Path({str(log)!r})); "
        "print(p.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        wait_for(lambda: log.exists() and log.stat().st_size > 0)
        process.kill()
    wait_for(lambda: not is_running(pid))


def test_a_program_that_is_absent_says_so_in_its_log(processes: Processes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = processes.start(["/nowhere/program"], env=ENV, output=log)
    assert process.wait(20) == 127
    assert "cannot start /nowhere/program" in log.read_text()


def test_a_free_port_can_be_listened_on() -> None:
    assert 1024 < free_port() < 65536
