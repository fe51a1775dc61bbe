"""A strict fake agent on loopback: refuses what a real one would refuse, and misbehaves on order. Never the real agent's code."""

import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit


def snapshot_json(node: str = "gpu-a", **fields: Any) -> dict[str, Any]:
    """The smallest snapshot of the format, with these fields over it."""
    return {"wire": 1, "node": node, "taken_at": 1764540000.0, "cursor": "7"} | fields


class FakeAgent:
    """What a test sets before a poll and reads after it.

    `answer` is the JSON to give, `raw` bytes to send in place of any HTTP, `drip` bytes to send one at a time until the asker
    leaves, `silent` to accept and never answer, `status` an HTTP status to give instead.
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.answer: Any = snapshot_json()
        self.body: bytes | None = None
        self.raw: bytes | None = None
        self.drip = False
        self.silent = False
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []  # the cursors given
        self.connections = 0
        self.released = threading.Event()
        self.url = ""
        self.close_after = False  # close the connection after each answer without saying so

    @property
    def target(self) -> str:
        return self.url.partition("://")[2]


@contextmanager
def running_agent(
    *, token: str | None = None, context: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[FakeAgent]:
    """Serve a fake agent on a free port until the block ends."""
    agent = FakeAgent(token)

    class Answers(_Answers):
        fake = agent

    server = _Server(("127.0.0.1", port), Answers)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    agent.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield agent
    finally:
        agent.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nothing listens (bound, so that nobody else takes it)."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An asker that hangs up is no news."""


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeAgent

    def setup(self) -> None:
        self.fake.connections += 1
        super().setup()

    def do_GET(self) -> None:
        agent = self.fake
        if agent.silent:
            agent.released.wait(30)
            return
        if agent.raw is not None:
            self.wfile.write(agent.raw)
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        agent.asked.append(query.get("after", [""])[0])
        if agent.token is not None and self.headers["authorization"] != f"Bearer {agent.token}":
            self._send(401, b'{"error": "unauthorized"}')
        elif parts.path != "/v1/snapshot" or not set(query) <= {"after"}:
            self._send(404, b'{"error": "not found"}')
        elif agent.drip:
            self._drip()
        else:
            body = agent.body if agent.body is not None else json.dumps(agent.answer).encode()
            self._send(agent.status, body)
            self.close_connection = self.close_connection or agent.close_after

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        for name, value in ({"content-length": str(len(body))} | self.fake.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _drip(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "1000000")
        self.end_headers()
        while not self.fake.released.wait(0.02):
            self.wfile.write(b" ")
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Quiet."""
