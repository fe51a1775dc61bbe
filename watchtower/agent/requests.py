"""Answers one HTTP request after another on one connection: who may ask, what is asked, one JSON sentence when it is wrong.
Takes every answer from memory; opens nothing.
"""

import contextlib
import http.client
import json
import logging
import math
import re
import socket
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from watchtower import wire
from watchtower.secrets import same_secret

logger = logging.getLogger(__name__)

_MAX_HEAD_BYTES = 16 * 1024
_DRAIN_S, _DRAIN_BYTES = 1.0, 1024 * 1024
_MAX_RELEASE_MIN = 24 * 60
_JSON = "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = {"/v1/snapshot": "GET", "/metrics": "GET", "/healthz": "GET", "/release": "POST"}


class Health(msgspec.Struct, frozen=True):
    """Whether what we tell is fresh, why not, and what we cannot see at all."""

    fresh: bool
    reason: str | None
    blind: tuple[str, ...] = ()


class Memory(Protocol):
    """What the server tells, all of it at once and from memory."""

    def snapshot(self, after: str | None) -> wire.Snapshot:
        """What is new since a cursor."""
        ...

    def health(self) -> Health:
        """Whether it is fresh."""
        ...

    def metrics(self) -> bytes:
        """The Prometheus exposition."""
        ...

    def release(self, minutes: float) -> None:
        """Let go of the GPUs for so long."""
        ...


class Host(Protocol):
    """What a connection needs of its server."""

    memory: Memory
    token: str | None
    idle_s: float

    def answering(self, connection: object) -> None:
        """The head of a request has come in whole: its connection is not idle."""
        ...


class _WrongError(Exception):
    """The request cannot be answered; status and the sentence to say so."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class _Head:
    """Reads lines of one request's head, up to a number of bytes for all of them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _MAX_HEAD_BYTES

    def begin(self) -> None:
        """Another request begins."""
        self._left = _MAX_HEAD_BYTES

    def readline(self, limit: int = -1) -> bytes:
        """As a file's; raises _WrongError beyond the bound."""
        most = self._left + 1
        line = self._file.readline(most if limit < 0 else min(limit, most))
        self._left -= len(line)
        if self._left < 0:
            raise _WrongError(431, f"the request's head is larger than {_MAX_HEAD_BYTES} bytes")
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class AgentRequestHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one packet

    def version_string(self) -> str:
        """What the Server header says: neither our version nor Python's is a stranger's business."""
        return "watchtower-agent"

    def setup(self) -> None:
        """Bound the time and the size of what we wait for."""
        self.host = cast(Host, self.server)
        self.request.settimeout(self.host.idle_s)
        super().setup()
        self.head = _Head(cast(BinaryIO, self.rfile))
        self.rfile = cast(Any, self.head)

    def handle_one_request(self) -> None:
        """One request; a head that is too large ends the connection with a sentence."""
        self.head.begin()
        self.command, self.requestline, self.request_version = "", "", self.protocol_version
        try:
            super().handle_one_request()
        except _WrongError as wrong:
            self.send_error(wrong.status, wrong.sentence)
            self._end_kindly()

    def _end_kindly(self) -> None:
        """Say what we have to say before the connection ends: to close it with bytes unread would throw our answer away."""
        with contextlib.suppress(OSError):
            self.wfile.flush()
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
            self.connection.settimeout(_DRAIN_S)
            left = _DRAIN_BYTES
            while left > 0 and (more := len(self.connection.recv(_MAX_HEAD_BYTES))):
                left -= more

    # The standard library finds these by name.

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET  # noqa: N815

    def _answer(self) -> None:
        self.host.answering(self.connection)
        # A body is never read, so what follows it could be taken for another request: end the connection instead.
        lengths = self.headers.get_all("content-length") or []
        if "transfer-encoding" in self.headers or any(length.strip() != "0" for length in lengths):
            self.close_connection = True
        try:
            status, content_type, body = self._route()
        except _WrongError as wrong:
            self._sentence(wrong.status, wrong.sentence)
        else:
            self._send(status, content_type, body)

    def _route(self) -> tuple[int, str, bytes]:
        try:
            url = urlsplit(self.path)
            query = parse_qs(url.query, keep_blank_values=True, max_num_fields=16)
        except ValueError:
            raise _WrongError(400, "the request's address cannot be understood") from None
        wanted = _METHODS.get(url.path)
        if wanted is None:
            raise _WrongError(404, f"there are {', '.join(sorted(_METHODS))}, and nothing else")
        if self.command != wanted and not (self.command == "HEAD" and wanted == "GET"):
            raise _WrongError(405, f"{url.path} takes {wanted}")
        authorized = self._authorized()
        if url.path == "/healthz":
            return self._health(authorized)
        if not authorized:
            raise _WrongError(401, "this agent wants its bearer token: Authorization: Bearer <token>")
        if url.path == "/metrics":
            return 200, _PROMETHEUS, self.host.memory.metrics()
        if url.path == "/release":
            return self._release(query)
        after = query.get("after", [None])[0]
        return 200, _JSON, wire.encode(self.host.memory.snapshot(after))

    def _authorized(self) -> bool:
        token = self.host.token
        if token is None:
            return True
        scheme, _, given = self.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and same_secret(given.strip(), token)

    def _health(self, authorized: bool) -> tuple[int, str, bytes]:
        """Anyone may ask whether we are well (a container's probe carries no token); what we cannot see is for the watcher."""
        health = self.host.memory.health()
        said: dict[str, object] = {"status": "ok" if health.fresh else "stale", "reason": health.reason}
        if authorized:
            said["blind"] = health.blind
        return 200 if health.fresh else 503, _JSON, json.dumps(said).encode()

    def _release(self, query: dict[str, list[str]]) -> tuple[int, str, bytes]:
        if self.host.token is None:
            # This machine's jobs can connect too, and must not blind the watch over others.
            raise _WrongError(403, "only the bearer of a token may release the GPUs; without one, kill -USR1")
        if "origin" in self.headers:
            raise _WrongError(403, "a web page may not release the GPUs")
        try:
            minutes = float(query.get("minutes", [""])[0])
        except ValueError:
            minutes = math.nan
        if not 0 <= minutes <= _MAX_RELEASE_MIN:
            raise _WrongError(
                400, f"say for how long: /release?minutes=N, 0 (take up again) to {_MAX_RELEASE_MIN}"
            )
        self.host.memory.release(minutes)
        return 200, _JSON, json.dumps({"released_min": minutes}).encode()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library finds wrong with a request, as a sentence in JSON; ends the connection."""
        self.close_connection = True
        self.request_version = (
            self.protocol_version
        )  # what could not be parsed counts as 0.9 there, and gets no head
        self._sentence(int(code), explain or message or http.client.responses.get(int(code), "bad request"))

    def _sentence(self, status: int, sentence: str) -> None:
        self._send(status, _JSON, json.dumps({"error": sentence}).encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Only for debugging: a poll each second is no news. Without the query, where somebody may have put a token."""
        said = re.sub(r"\?\S*", "?", format % args)
        logger.debug("request peer=%s %s", self.client_address[0], said)
