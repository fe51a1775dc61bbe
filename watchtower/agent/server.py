"""Listens, bounds the connections and wraps them in TLS; agent/requests.py answers. Never calls NVML, waits only for sockets."""

import contextlib
import logging
import socket
import socketserver
import ssl
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from watchtower.agent.requests import AgentRequestHandler, Memory
from watchtower.clock import Clock

logger = logging.getLogger(__name__)

_HANDSHAKE_S = 10.0
_PROBE_S = 2.0
_TURN_LIMIT_S = 10.0


class TlsError(Exception):
    """The certificate, key or client CA cannot be used; the message names the file and what is wrong."""


def tls_context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """A server's context, TLS 1.2 and later.

    Args:
        certificate: PEM, with its chain.
        key: PEM, without a pass phrase.
        client_ca: where given, a client must show a certificate that this CA has signed.

    Raises:
        TlsError: show it to the user.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        for path in (certificate, key, *([client_ca] if client_ca else [])):
            path.open("rb").close()
        # A pass phrase is answered with nothing: the default would ask at the terminal and wait.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        raise TlsError(f"{certificate} and {key} are not a certificate and its key: {error.reason}") from None
    except OSError as error:
        raise TlsError(f"cannot read {error.filename}: {error.strerror}") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise TlsError(f"{client_ca} is not a CA certificate: {error.reason}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Connection(msgspec.Struct):
    socket: socket.socket
    waiting_since: float


class AgentServer(ThreadingHTTPServer):
    """A bounded number of connections, one thread each.

    A connection has `idle_s` from one answer to the whole head of the next request. When there are too many, the one that
    has been waiting longest is closed, so that nobody keeps the watcher out by holding connections.

    Args:
        address: host and port; port 0 takes a free one.
        token: what a bearer must say; None: whoever can connect may read.
        tls: None: plain HTTP.

    Raises:
        OSError: the address is in use, or is not ours.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        memory: Memory,
        clock: Clock,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        max_connections: int = 32,
        idle_s: float = 150.0,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.memory = memory
        self.token = token
        self.idle_s = idle_s
        self._tls = tls
        self._clock = clock
        self._max_connections = max_connections
        self._connections: dict[int, _Connection] = {}
        self._lock = threading.Lock()
        self._turned_at = clock.monotonic()
        super().__init__(address, AgentRequestHandler)

    # -- one connection -----------------------------------------------------------------------------------------------

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept one; small answers must not wait for an acknowledgement."""
        connection, peer = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, peer

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Make room for it; with twice too many, those that we close do not even end, and it is refused."""
        with self._lock:
            waiting = sorted(self._connections.values(), key=lambda c: c.waiting_since)
        if len(waiting) >= 2 * self._max_connections:
            return False
        for connection in waiting[: max(0, len(waiting) - self._max_connections + 1)]:
            _cut(connection.socket)
        return super().verify_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the connection's own thread: shake hands, then answer until it ends."""
        connection = request
        key = threading.get_ident()
        try:
            if self._tls is not None:
                request.settimeout(_HANDSHAKE_S)
                connection = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            with self._lock:
                self._connections[key] = _Connection(connection, self._clock.monotonic())
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            super().finish_request(connection, client_address)
        finally:
            with self._lock:
                self._connections.pop(key, None)
            if connection is not request:
                with contextlib.suppress(OSError):
                    connection.close()

    def answering(self, connection: object) -> None:
        """The head of a request has come in whole."""
        with self._lock:
            mine = self._connections.get(threading.get_ident())
            if mine is not None:
                mine.waiting_since = self._clock.monotonic()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that leaves or stumbles is no news; anything else is a mistake of ours."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            logger.debug("connection_ended peer=%s why=%s", client_address[0], error)
        else:
            logger.error("request_broke peer=%s", client_address[0], exc_info=error)

    # -- the server ---------------------------------------------------------------------------------------------------

    def server_bind(self) -> None:
        """Bind without asking a name service who we are, as the class in between would."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def service_actions(self) -> None:
        """Called by serve_forever twice a second: end what has been waiting too long."""
        self._turned_at = now = self._clock.monotonic()
        with self._lock:
            late = [c.socket for c in self._connections.values() if now - c.waiting_since > self.idle_s]
        for connection in late:
            _cut(connection)

    def answers(self) -> bool:
        """Whether connections are still taken up, and a question put past the network is answered."""
        if self._clock.monotonic() - self._turned_at > _TURN_LIMIT_S:
            return False
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(_PROBE_S)
            ours.sendall(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
            threading.Thread(
                target=AgentRequestHandler, args=(theirs, ("127.0.0.1", 0), self), daemon=True
            ).start()
            try:
                return ours.recv(64).startswith(b"HTTP/1.1 ")
            except OSError:
                return False


def _cut(connection: socket.socket) -> None:
    """End a connection from another thread: its own thread reads an end and cleans up."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
