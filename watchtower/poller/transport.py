"""One connection per agent under one httpx client. Knows nothing about snapshots."""

import ssl

import httpx

# Above any polling interval, or each poll would reconnect (httpx's own default is 5 s).
KEEPALIVE_S = 120.0


class PerAgentTransport(httpx.AsyncBaseTransport):
    """Sends each request through a pool of exactly one connection that belongs to its origin.

    A shared httpx pool walks all its connections for every request, which at a thousand agents costs most of a second each.
    Here an agent pays only for itself, and a stuck one holds nobody else's connection.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._pools: dict[tuple[str, str, int | None], httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send through the origin's own pool, made at its first request."""
        origin = _origin(request.url)
        pool = self._pools.get(origin)
        if pool is None:
            limits = httpx.Limits(
                max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEPALIVE_S
            )
            pool = httpx.AsyncHTTPTransport(verify=self._context, trust_env=False, limits=limits)
            self._pools[origin] = pool
        return await pool.handle_async_request(request)

    async def drop(self, url: httpx.URL) -> None:
        """Close the origin's connection, if there is one; its next request starts afresh."""
        pool = self._pools.pop(_origin(url), None)
        if pool is not None:
            await pool.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        while self._pools:
            await self._pools.popitem()[1].aclose()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
