"""Holds the daemon's HTTP port: bound early so that a clash is one sentence, served on the daemon's own loop. Handles no signal."""

import contextlib
import errno
import logging
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from watchtower.web.settings import WebSettings, split_address

_BACKLOG = 128
# Longer than any usual scrape or poll interval, so that nobody has to reconnect each time.
_KEEPALIVE_S = 75
_GRACE_S = 2

for _noisy in ("uvicorn", "uvicorn.error", "uvicorn.access"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)


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


class Port:
    """The server on the port, from `serve` until `stop`."""

    def __init__(self, app: Starlette, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Server(
            uvicorn.Config(
                app,
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
