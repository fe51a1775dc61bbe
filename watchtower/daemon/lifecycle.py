"""The daemon's life as a process: start, signals, reload, orderly end, exit status. Knows nothing of runs."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from watchtower.clock import Clock, SystemClock
from watchtower.config import Config, ConfigError, load
from watchtower.daemon.parts import StartError, build
from watchtower.daemon.wiring import Daemon
from watchtower.sdnotify import notify, watchdog_interval_s
from watchtower.store.database import StoreError
from watchtower.store.store import Store
from watchtower.web.port import PortError, bind

_log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_BROKEN = 1  # something ended that must not end; start it again
EXIT_MISTAKE = 2  # a person has to change something first
_STOP_S = 9.0


def serve(config: Path, *, clock: Clock | None = None) -> int:
    """Run the daemon until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 after a signal, 1 when it broke, 2 when it could not start because of something to be mended.
    """
    _allow_open_files()
    return asyncio.run(_Life(config, clock or SystemClock()).run())


def _allow_open_files() -> None:
    """Take all the open files that we may have: each agent keeps a connection, and the usual soft limit is 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Life:
    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._stop = asyncio.Event()
        self._hup = asyncio.Event()
        self._broken = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hup.set)
        daemon = await self._start()
        if daemon is None:
            return EXIT_MISTAKE
        notify("READY=1\nSTATUS=watching")
        while not self._stop.is_set():
            await self._next_event()
            if self._hup.is_set() and not self._stop.is_set():
                self._hup.clear()
                await self._reload(daemon)
        return await self._end(daemon)

    async def _start(self) -> Daemon | None:
        try:
            parts = await build(_load(self._path))
            listener = bind(parts.config.web)
            store = Store.open(parts.config.store.directory)
            daemon = Daemon(parts, store, clock=self._clock, fatal=self._fatal)
        except (ConfigError, StartError) as error:
            for mistake in error.mistakes:
                _log.error("cannot_start %s", mistake)
            return None
        except (PortError, StoreError) as error:
            _log.error("cannot_start %s", error)
            return None
        for run_id in daemon.unreadable:
            _log.warning("memory_unreadable run=%s (written by another version; it is learned anew)", run_id)
        await daemon.start(listener)
        config = parts.config
        _log.info(
            "started pid=%d listen=%s agents=%d sinks=%d store=%s",
            os.getpid(),
            config.web.listen,
            len(parts.agents),
            len(parts.sinks),
            config.store.directory,
        )
        if not parts.sinks:
            _log.warning("no_sinks nobody will be told of anything: set [[slack]] or [[pagerduty]]")
        return daemon

    async def _next_event(self) -> None:
        waits = {asyncio.create_task(self._stop.wait()), asyncio.create_task(self._hup.wait())}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _reload(self, daemon: Daemon) -> None:
        notify(f"RELOADING=1\nMONOTONIC_USEC={int(self._clock.monotonic() * 1e6)}")
        try:
            parts = await build(_load(self._path))
        except (ConfigError, StartError) as error:
            for mistake in error.mistakes:
                _log.error("reload_failed %s", mistake)
            _log.error("reload_failed the settings from before stay in use")
            daemon.metrics.reloads.labels("failed").inc()
            daemon.metrics.config_ok.set(0)
        else:
            for sentence in await daemon.reload(parts):
                _log.warning("reload_incomplete %s", sentence)
            daemon.metrics.reloads.labels("ok").inc()
            daemon.metrics.config_ok.set(1)
            _log.info("reloaded agents=%d sinks=%d", len(parts.agents), len(parts.sinks))
        notify("READY=1")

    async def _end(self, daemon: Daemon) -> int:
        notify("STOPPING=1")
        try:
            async with asyncio.timeout(_STOP_S):
                await daemon.stop()
        except TimeoutError:
            _log.error("stop_timeout after_s=%g", _STOP_S)
            sys.stderr.flush()
            os._exit(EXIT_BROKEN)  # the store's thread is stuck; asyncio would wait for it
        except StoreError as error:
            _log.error("stop_unsaved %s", error)
            self._broken = True
        _log.info("stopped")
        return EXIT_BROKEN if self._broken else EXIT_OK

    def _asked_to_stop(self, number: int) -> None:
        if self._stop.is_set():
            _log.warning("stop_forced signal=%s", signal.Signals(number).name)
            sys.stderr.flush()
            os._exit(EXIT_BROKEN)
        _log.info("stopping signal=%s", signal.Signals(number).name)
        self._stop.set()

    def _fatal(self, name: str, error: BaseException | None) -> None:
        if self._broken:
            return
        self._broken = True
        expected = _store_error(error)
        if expected is None:
            _log.critical("broken part=%s", name, exc_info=error)
        else:
            _log.critical("broken part=%s %s", name, expected)
        self._stop.set()


def _store_error(error: BaseException | None) -> StoreError | None:
    """The store's own sentence, also from under a group of workers; None for what nobody expected."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error if isinstance(error, StoreError) else None


def _load(path: Path) -> Config:
    config = load(path)
    limit_s, interval_s = watchdog_interval_s(), config.poll.interval_s
    if limit_s is not None and limit_s < 3 * interval_s:
        sentence = (
            f"poll.interval_s: {interval_s:g} s is more than a third of systemd's WatchdogSec ({limit_s:g} s), "
            "which would restart a healthy daemon; raise WatchdogSec"
        )
        raise StartError((sentence,))
    return config
