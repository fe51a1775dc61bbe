"""The real web room on a real loopback port, in front of reads that a test sets by hand. Has no judge and no store."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.fakes.reads import FakeReads
from watchtower.web.access import Access
from watchtower.web.app import make_app
from watchtower.web.port import Port, bind
from watchtower.web.settings import WebSettings


@contextmanager
def running_daemon(reads: FakeReads | None = None, *, token: str | None = None) -> Iterator[str]:
    """Serve until the block ends.

    Yields:
        The URL.
    """
    settings = WebSettings(listen="127.0.0.1:0", token_file=None if token is None else Path("token"))
    listener = bind(settings)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    port = Port(make_app(reads or FakeReads(), Access(settings, token)), listener)
    thread = threading.Thread(target=lambda: asyncio.run(port.serve()))
    thread.start()
    try:
        yield url
    finally:
        port.stop()
        thread.join()


@contextmanager
def behind_tls(url: str, context: ssl.SSLContext) -> Iterator[str]:
    """Stand in front of a daemon as a reverse proxy does, for one short request and one answer at a time.

    Yields:
        The https URL.
    """
    place = urlsplit(url)
    listener = socket.create_server(("127.0.0.1", 0))

    def pass_on() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with (
                contextlib.suppress(OSError),
                plain,
                context.wrap_socket(plain, server_side=True) as near,
                socket.create_connection((str(place.hostname), place.port or 80)) as far,
            ):
                far.sendall(near.recv(1 << 16).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                while piece := far.recv(1 << 16):
                    near.sendall(piece)

    thread = threading.Thread(target=pass_on)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
