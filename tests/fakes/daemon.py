"""The real web room on a real loopback port, in front of reads that a test sets by hand. Has no judge and no store."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
