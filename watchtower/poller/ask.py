"""Asks one agent for its newest snapshot; every way that can fail is a value. Keeps no schedule and judges nothing."""

import asyncio
import logging
import ssl

import httpx
import msgspec

from watchtower.model import PollFailure
from watchtower.poller.failure import Failed, failed, refused_token, why
from watchtower.poller.targets import Agent
from watchtower.poller.transport import PerAgentTransport
from watchtower.wire import Snapshot, decode

# httpx and httpcore write whole URLs and headers at INFO and DEBUG.
for _noisy in ("httpx", "httpcore"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)

# Ten minutes of sixteen boards at 1 Hz are about 0.5 MB; beyond this it is not an agent that answers.
MAX_REPLY_BYTES = 16 * 1024 * 1024
_CLOSE_S = 1.0


class Asker:
    """Asks agents over HTTP, one request and one connection each at a time.

    Args:
        context: the TLS context that all share.
        timeout_s: the deadline of a whole poll: connecting, asking and reading together.
        token: the bearer token, or None.
    """

    def __init__(self, *, context: ssl.SSLContext, timeout_s: float, token: str | None = None) -> None:
        self._timeout_s = timeout_s
        self._transport = PerAgentTransport(context)
        # Identity only: a small compressed body must not unfold into a huge one.
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._client = httpx.AsyncClient(
            transport=self._transport,
            trust_env=False,
            timeout=None,  # noqa: S113  one deadline around the whole poll instead of one per phase
            headers=headers,
            follow_redirects=False,  # the token goes to nobody else
        )
        self._requests: dict[Agent, httpx.Request] = {}

    async def ask(self, agent: Agent, cursor: str) -> Snapshot | Failed:
        """Ask for what is newer than the cursor.

        Args:
            agent: whom.
            cursor: what its last snapshot gave; empty for everything it has.

        Returns:
            The snapshot, or why there is none. Nothing is raised but cancellation.
        """
        request = self._request(agent, cursor)
        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    answer = await self._exchange(request)
                except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                    # An agent that restarted, or closed an idle connection just then: ask once more on a new one.
                    await self._transport.drop(request.url)
                    answer = await self._exchange(request)
        except TimeoutError:
            answer = failed(PollFailure.TIMEOUT, f"no answer within {self._timeout_s:g} s")
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            answer = why(error, agent.url)
        if isinstance(answer, Failed):
            await self._drop(request.url)
        return answer

    async def forget(self, agent: Agent) -> None:
        """Close the connection to an agent that is no longer asked."""
        request = self._requests.pop(agent, None)
        if request is not None:
            await self._drop(request.url)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _request(self, agent: Agent, cursor: str) -> httpx.Request:
        built = self._requests.get(agent)
        if built is None:
            built = self._client.build_request("GET", f"{agent.url}/v1/snapshot")
            self._requests[agent] = built
        if cursor:
            built.url = built.url.copy_with(params={"after": cursor})
        else:
            built.url = built.url.copy_with(query=None)
        return built

    async def _exchange(self, request: httpx.Request) -> Snapshot | Failed:
        response = await self._client.send(request, stream=True)
        try:
            if response.status_code in {401, 403}:
                return refused_token(response.status_code, had_token="authorization" in self._client.headers)
            if response.status_code != 200:
                return failed(PollFailure.BAD_REPLY, f"HTTP {response.status_code}: is this an agent?")
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MAX_REPLY_BYTES:
                    return failed(
                        PollFailure.BAD_REPLY, f"an answer of more than {MAX_REPLY_BYTES >> 20} MiB"
                    )
        finally:
            await response.aclose()
        try:
            return decode(bytes(body))
        except msgspec.ValidationError as error:
            return failed(PollFailure.BAD_REPLY, f"not a snapshot: {error}")
        except (msgspec.DecodeError, RecursionError):
            return failed(PollFailure.BAD_REPLY, "not JSON")

    async def _drop(self, url: httpx.URL) -> None:
        # After a failure the connection's state is not known; a new one costs little.
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._transport.drop(url)
        except (TimeoutError, OSError, httpx.HTTPError, RuntimeError):
            pass
