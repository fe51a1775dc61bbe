"""A local server in place of PagerDuty and Slack, with their rules and their bad days. Never a service for real pages."""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TextIO

import msgspec

from watchtower.clock import Clock, SystemClock
from watchtower.simulate.provider_rules import Accepted, PagerDuty, readable, slack_refusal

__all__ = ["Accepted", "Mode", "PagerDuty", "Receiver", "main", "readable"]

_HANG_S = 60.0


class Mode(StrEnum):
    """How a provider behaves."""

    OK = "ok"
    HANG = "hang"  # takes nothing and does not answer
    THROTTLE = "throttle"  # 429 with Retry-After
    ERROR = "error"  # 500
    ACCEPT_THEN_DROP = "accept_then_drop"  # takes it, then closes without a word
    REDIRECT = "redirect"  # 302
    HTML = "html_200"  # a proxy's page
    GONE = "gone"  # 404: the webhook or key was revoked


class Receiver:
    """One loopback server with all providers: `/v2/enqueue` is PagerDuty, `/services/…` Slack, `/ping/…` a dead-man's switch.

    Args:
        port: 0 picks a free one.
        clock: stamps what arrives.
        on_accepted: called with every message taken, on the server's thread.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        clock: Clock | None = None,
        on_accepted: Callable[[Accepted], None] | None = None,
    ) -> None:
        self.pagerduty = PagerDuty()
        self.accepted: list[Accepted] = []
        self.refused: list[tuple[str, str]] = []  # (provider, why)
        self.requests = 0
        self.changed = threading.Condition()
        self._modes: dict[str, tuple[Mode, int]] = {}
        self._clock = clock or SystemClock()
        self._on_accepted = on_accepted
        self._stopping = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Conversation)
        self._server.receiver = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="receivers")

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Base URL; also PagerDuty's `base_url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def slack_url(self) -> str:
        """A webhook URL."""
        return f"{self.url}/services/T0/B0/demo"

    def stop(self) -> None:
        """Stop serving and let go of hanging conversations; a second time does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def behave(self, provider: str, mode: Mode, *, times: int = 1_000_000) -> None:
        """Make a provider misbehave for its next `times` requests."""
        with self.changed:
            self._modes[provider] = (mode, times)

    def wait_for(self, ready: Callable[["Receiver"], bool], *, within_s: float) -> bool:
        """Wait until `ready` holds; looked at whenever something arrives."""
        with self.changed:
            return self.changed.wait_for(lambda: ready(self), timeout=within_s)

    def answer(self, path: str, raw: bytes) -> tuple[int, dict[str, str], bytes] | None:
        """Decide on one request; None closes the connection without an answer."""
        provider = {"v2": "pagerduty", "services": "slack", "ping": "deadman"}.get(path.split("/")[1], "")
        with self.changed:
            mode, left = self._modes.get(provider, (Mode.OK, 0))
            if left <= 1:
                self._modes.pop(provider, None)
            else:
                self._modes[provider] = (mode, left - 1)
            self.requests += 1
            self.changed.notify_all()
        if mode is Mode.HANG:
            self._stopping.wait(_HANG_S)
            return None
        if mode not in (Mode.OK, Mode.ACCEPT_THEN_DROP):
            return _MISBEHAVIOUR[mode]
        if provider not in ("pagerduty", "slack", "deadman"):
            return 404, {}, b"no_service"
        reply = self._take(provider, path, raw)
        return None if mode is Mode.ACCEPT_THEN_DROP else reply

    def _take(self, provider: str, path: str, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        try:
            body: Any = raw.decode() if provider == "deadman" else json.loads(raw)
        except ValueError:
            body = None
        why = None
        if provider == "slack":
            why = slack_refusal(body)
        elif provider == "pagerduty":
            why = self.pagerduty.refusal(body, len(raw))
        with self.changed:
            if why is not None:
                self.refused.append((provider, why))
                self.changed.notify_all()
                invalid = {"status": "invalid event", "message": "Event object is invalid", "errors": [why]}
                return 400, {}, why.encode() if provider == "slack" else json.dumps(invalid).encode()
            if provider == "pagerduty":
                self.pagerduty.take(body)
                body = {name: value for name, value in body.items() if name != "routing_key"}
            shown = "/services/…" if provider == "slack" else path
            message = Accepted(self._clock.now(), provider, shown, body)
            self.accepted.append(message)
            if self._on_accepted is not None:
                self._on_accepted(message)
            self.changed.notify_all()
        if provider == "pagerduty":
            yes = {"status": "success", "message": "Event processed", "dedup_key": body.get("dedup_key")}
            return 202, {}, json.dumps(yes).encode()
        return 200, {}, b"ok"


_MISBEHAVIOUR: dict[Mode, tuple[int, dict[str, str], bytes]] = {
    Mode.THROTTLE: (429, {"Retry-After": "2"}, b'{"retry_after":2,"ok":false,"error":"rate_limited"}'),
    Mode.ERROR: (500, {}, b"rollup_error"),
    Mode.REDIRECT: (302, {"Location": "/services/elsewhere"}, b""),
    Mode.HTML: (200, {"Content-Type": "text/html"}, b"<html>log in to the guest network</html>"),
    Mode.GONE: (404, {}, b"no_service"),
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    receiver: Receiver


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        """Read one request and answer as the provider would."""
        length = int(self.headers.get("Content-Length", "0"))
        raw = self.rfile.read(length)
        if len(raw) < length:  # the sender died half-way through: no provider ever saw a message
            self.close_connection = True
            return
        answer = self.server.receiver.answer(self.path, raw)
        if answer is None:
            self.close_connection = True
            return
        status, headers, body = answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (as http.server has it)
        """Say nothing: the paths are webhook secrets."""


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; one JSON line per message taken, and the message itself on standard output."""
    parser = argparse.ArgumentParser(prog="python -m watchtower.simulate.receivers", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one, which is printed")
    parser.add_argument("--out", type=Path, help="append accepted messages here, one JSON object a line")
    parser.add_argument("--quiet", action="store_true", help="do not print the messages")
    options = parser.parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        out = options.out.open("a", encoding="utf-8") if options.out else None
        receiver = Receiver(options.port, on_accepted=_printer(out, quiet=options.quiet))
    except OSError as error:
        print(f"receivers: cannot start: {error}", file=sys.stderr)  # noqa: T201
        return 1
    with receiver:
        print(f"receivers listen on {receiver.url}", flush=True)  # noqa: T201
        stop.wait()
    if out is not None:
        out.close()
    return 0


def _printer(out: TextIO | None, *, quiet: bool) -> Callable[[Accepted], None]:
    def write(message: Accepted) -> None:
        if out is not None:
            out.write(msgspec.json.encode(message).decode() + "\n")
            out.flush()
        if not quiet:
            print(f"--- {message.provider} took:\n{readable(message)}\n", flush=True)  # noqa: T201

    return write


if __name__ == "__main__":
    sys.exit(main())
