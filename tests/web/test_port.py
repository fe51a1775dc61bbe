"""The real port: what it answers, how a clash is said, and that it stops."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.fakes.reads import FakeReads
from watchtower.web.access import Access
from watchtower.web.app import make_app
from watchtower.web.port import Port, PortError, bind
from watchtower.web.settings import WebSettings


@asynccontextmanager
async def listening(*, head_s: float) -> AsyncIterator[tuple[str, int]]:
    settings = WebSettings(listen="127.0.0.1:0")
    listener = bind(settings)
    port = Port(make_app(FakeReads(), Access(settings, None)), listener, head_s=head_s)
    serving = asyncio.create_task(port.serve())
    yield listener.getsockname()
    port.stop()
    await serving


async def test_the_port_answers_and_stops_at_once() -> None:
    settings = WebSettings(listen="127.0.0.1:0")
    listener = bind(settings)
    port = Port(make_app(FakeReads(), Access(settings, None)), listener)
    serving = asyncio.create_task(port.serve())
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1/status")
    assert response.status_code == 200
    assert "server" not in response.headers
    port.stop()
    async with asyncio.timeout(5):
        await serving


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        with pytest.raises(
            PortError, match=r"web\.listen: cannot listen on 127.0.0.1:\d+.*another watchtower"
        ):
            bind(WebSettings(listen=f"127.0.0.1:{held.getsockname()[1]}"))


@pytest.mark.parametrize("listen", ["0.0.0.0:9478", ":9478", "[::]:9478", "watch.site:9478"])
def test_listening_beyond_loopback_needs_a_token_or_a_word(listen: str) -> None:
    with pytest.raises(ValueError, match="token_file"):
        WebSettings(listen=listen)
    assert WebSettings(listen=listen, insecure=True).insecure
    assert WebSettings(listen=listen, token_file=Path("t")).token_file


@pytest.mark.parametrize("listen", ["9478", "localhost", "localhost:http", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(ValueError, match="listen must be host:port"):
        WebSettings(listen=listen)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127"])
async def test_a_connection_that_asks_nothing_is_ended(sent: bytes) -> None:
    async with listening(head_s=0.2) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_a_connection_that_is_kept_may_rest_between_two_questions() -> None:
    async with listening(head_s=0.2) as address:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(2):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b'"well":true' in await reader.readuntil(b"}")
            silent, other = await asyncio.open_connection(*address)
            assert await silent.read() == b""  # so long ago was the answer
            other.close()
        writer.write(b"GET /healthz")
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_a_crowd_that_asks_nothing_keeps_nobody_out() -> None:
    async with listening(head_s=60.0) as address:
        crowd = [await asyncio.open_connection(*address) for _ in range(300)]
        async with httpx.AsyncClient(trust_env=False) as client:
            url = f"http://{address[0]}:{address[1]}/healthz"
            assert (await client.get(url)).status_code == 200
        async with asyncio.timeout(5):
            assert await crowd[0][0].read() == b""
        assert not crowd[-1][0].at_eof()
        for _, writer in crowd:
            writer.close()
