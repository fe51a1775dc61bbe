"""Runs one agent: puts reader, node side, memory and server together, and ends them in reverse. Decides nothing about GPUs or runs."""

import contextlib
import errno
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from watchtower import __version__, wire
from watchtower.agent.certificate import date_trouble
from watchtower.agent.node.side import NodeSide
from watchtower.agent.nvml.parent import NvmlReader, Patience
from watchtower.agent.nvml.process import SamplerProcess
from watchtower.agent.server import AgentServer, TlsError, tls_context
from watchtower.agent.settings import AgentSettings, SettingsError
from watchtower.agent.state import AgentState
from watchtower.clock import Clock
from watchtower.sdnotify import notify, watchdog_interval_s
from watchtower.secrets import SecretError, read_secret

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_READER_TURN_LIMIT_S = 20.0
_IDLE_WAKE_S = 5.0
_JOIN_S = 4.0  # the reader needs up to 3 s for a sampling process that will not leave


def run(settings: AgentSettings, clock: Clock) -> int:
    """Run until SIGTERM or SIGINT; SIGUSR1 lets go of the GPUs for a while, SIGUSR2 takes them up again. Call it from the main thread.

    Returns:
        The exit status: 0 after a signal, 2 when the settings cannot be used, 1 when the address cannot be listened on or
        a part of the agent has died.
        Errors are one sentence on standard error.
    """
    try:
        settings.check()
        token = None if settings.token_file is None else read_secret(settings.token_file)
        tls = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            tls = tls_context(settings.tls_cert, settings.tls_key, settings.client_ca)
            trouble = date_trouble(settings.tls_cert, settings.tls_key)
            if trouble is not None:
                # Not a reason to leave: a clock that is wrong at boot is set right soon.
                logger.error(
                    "certificate_out_of_date tls_cert = %s %s; no watcher will believe it",
                    settings.tls_cert,
                    trouble,
                )
    except (SettingsError, SecretError, TlsError) as error:
        return _refuse(str(error), 2)
    info = wire.AgentInfo(__version__, clock.now(), _boot_id(settings.proc_root))
    state = AgentState(settings.node or socket.gethostname(), info, clock, keep_s=settings.history_s)
    try:
        server = AgentServer(
            settings.address(),
            state,
            clock,
            token=token,
            tls=tls,
            max_connections=settings.max_connections,
        )
    except OSError as error:
        return _refuse(_cannot_listen(settings.listen, error), 1)
    with server:
        return _run_threads(settings, clock, state, server)


def _run_threads(settings: AgentSettings, clock: Clock, state: AgentState, server: AgentServer) -> int:
    command = settings.sampler_command or (
        sys.executable,
        "-m",
        "watchtower.agent.nvml.child",
        str(settings.proc_root),
    )
    patience = Patience(
        interval_s=settings.interval_s,
        deadline_s=settings.sweep_deadline_s,
        end_after_s=settings.end_after_s,
    )
    reader = NvmlReader(lambda: SamplerProcess(command), state.take, clock, patience)
    state.attach(reader)
    side = NodeSide(settings.node_settings(), clock)
    stop = threading.Event()
    threads = {
        "reader": threading.Thread(target=reader.run, name="nvml-reader", daemon=True),
        "node": threading.Thread(target=_look, args=(state, side, stop), name="node", daemon=True),
        "server": threading.Thread(target=server.serve_forever, name="http", daemon=True),
    }
    with _signals() as signals:
        for thread in threads.values():
            thread.start()
        logger.info(
            "agent_started listen=%s:%d tls=%s", *server.server_address[:2], settings.tls_cert is not None
        )
        notify("READY=1")
        watched = tuple(threads.values())
        status = _wait(signals, reader, server, watched, clock=clock, release_min=settings.release_min)
        notify("STOPPING=1")
        logger.info("agent_stopping")
        server.shutdown()
        stop.set()
        reader.stop()
        for thread in threads.values():
            thread.join(_JOIN_S)
        if not threads["node"].is_alive():
            side.close()
    return status


def _look(state: AgentState, side: NodeSide, stop: threading.Event) -> None:
    while not stop.is_set():
        side.pci_by_uuid = state.pci_by_uuid()
        state.look(side)
        stop.wait(_LOOK_EVERY_S)


def _wait(
    signals: int,
    reader: NvmlReader,
    server: AgentServer,
    threads: Sequence[threading.Thread],
    *,
    clock: Clock,
    release_min: float,
) -> int:
    """Until a signal to end comes (0), or a thread has died of a mistake of ours (1): better started anew than half alive.

    Feeds systemd's watchdog while the reader turns (not: while NVML answers; a wedged driver is ours to report, and a restart
    does not cure it) and the server answers.
    """
    interval_s = watchdog_interval_s()
    wake_s = _IDLE_WAKE_S if interval_s is None else min(_IDLE_WAKE_S, interval_s / 3)
    while True:
        ready, _, _ = select.select([signals], [], [], wake_s)
        came = os.read(signals, 64) if ready else b""
        if signal.SIGTERM in came or signal.SIGINT in came:
            return 0
        if signal.SIGUSR1 in came:
            reader.release(release_min)
        if signal.SIGUSR2 in came:
            reader.release(0)
        for thread in threads:
            if not thread.is_alive():
                logger.error("thread_died name=%s", thread.name)
                return 1
        turning = clock.monotonic() - reader.turned_at < _READER_TURN_LIMIT_S
        if interval_s is not None and turning and server.answers():
            notify("WATCHDOG=1")


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A file descriptor that becomes readable when a signal comes, one byte each. A handler that took a lock could wait for
    the very thread that it interrupts.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    old = {number: signal.signal(number, lambda *_: None) for number in _HEARD}
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        for number, action in old.items():
            signal.signal(number, action)
        os.close(reading)
        os.close(writing)


_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def _refuse(sentence: str, status: int) -> int:
    sys.stderr.write(f"watchtower agent: {sentence}\n")
    return status


def _cannot_listen(listen: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{listen} is in use; is another agent running? Stop it, or choose another address with --listen"
        )
    return f"cannot listen on {listen}: {error.strerror or error}"


def _boot_id(proc_root: Path) -> str | None:
    try:
        return (proc_root / "sys/kernel/random/boot_id").read_text().strip() or None
    except OSError:
        return None
