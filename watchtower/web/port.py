"""Holds the daemon's HTTP port: bound early so that a clash is one sentence, served on the daemon's own loop. Handles no signal."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from watchtower.web.settings import WebSettings, split_address

_BACKLOG = 128
# Longer than any usual scrape or poll interval, so that nobody has to reconnect each time.
_KEEPALIVE_S = 75
_GRACE_S = 2
_HEAD_S = 10.0
_MAX_IDLE = 256

# A warning of uvicorn's is a stranger's garbage, which anyone could send by the thousand.
for _noisy in ("uvicorn", "uvicorn.error", "uvicorn.access"):
    logging.getLogger(_noisy).setLevel(logging.ERROR)


class PortError(Exception):
    """The port cannot be had; the message names it and what to do. Show it and end."""


def bind(settings: WebSettings) -> socket.socket:
    """Take the port.

    Raises:
        PortError: in use, not ours to bind, or no such address.
    """
    host, port = split_address(settings.listen)
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise PortError(f"web.listen: cannot resolve {host!r}: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        hint = "; is another watchtower running?" if error.errno == errno.EADDRINUSE else ""
        raise PortError(f"web.listen: cannot listen on {settings.listen}: {error.strerror}{hint}") from None
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: the daemon stops everything in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(H11Protocol):
    """One connection that may not be held for nothing: each costs a file, and polls need files.

    The head of a request has to come in within `head_s`; of too many idle connections the oldest is closed.
    """

    head_s: float
    idle: dict[Any, None]  # those that wait for a request, oldest first; of all connections of one port

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._due: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._expect_head()
        if len(self.idle) > _MAX_IDLE:
            next(iter(self.idle)).transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._asked():
            self._expect_nothing()
        elif self._due is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def _asked(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def _expect_head(self) -> None:
        self.idle[self] = None
        self._due = self.loop.call_later(self.head_s, self._give_up)

    def _expect_nothing(self) -> None:
        self.idle.pop(self, None)
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _give_up(self) -> None:
        self._due = None
        if not self._asked():
            self.transport.close()


class Port:
    """The server on the port, from `serve` until `stop`.

    Args:
        app: answers.
        listener: bound.
        head_s: seconds for a request's head to come in whole.
    """

    def __init__(self, app: Starlette, listener: socket.socket, *, head_s: float = _HEAD_S) -> None:
        self._listener = listener
        connections = type("_Connections", (_Connection,), {"head_s": head_s, "idle": {}})
        self._server = _Server(
            uvicorn.Config(
                app,
                http=connections,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                proxy_headers=False,  # who asks is the peer, not what a header claims
                server_header=False,
                timeout_keep_alive=_KEEPALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )

    async def serve(self) -> None:
        """Answer until `stop`."""
        await self._server.serve(sockets=[self._listener])

    def stop(self) -> None:
        """Take no more requests, finish what is under way within two seconds."""
        self._server.should_exit = True
