"""The daemon's HTTP answers: the JSON API, /metrics, /healthz. Reads only through the protocol in answers.py; knows no store and no judge."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from watchtower.metrics import CONTENT_TYPE
from watchtower.web.access import Access, actor
from watchtower.web.answers import REFERENCE_SIGNS, AckOutcome, Reads

_encode = msgspec.json.Encoder().encode
_MAX_LIMIT = 1000
_MAX_DIGITS = 18
_INDEX = b"watchtower\n\n/api/v1/status\n/api/v1/runs\n/api/v1/incidents\n/metrics\n/healthz\n"

_Answer = Callable[[Request], Awaitable[Response]]


def make_app(reads: Reads, access: Access) -> Starlette:
    """Build the application.

    Args:
        reads: where every answer comes from.
        access: who may ask.
    """
    api = _Api(reads)

    def reading(answer: _Answer) -> _Answer:
        return _guarded(answer, access.refuse_reading)

    def acting(answer: _Answer) -> _Answer:
        return _guarded(answer, access.refuse_acting)

    return Starlette(
        routes=[
            Route("/", reading(api.index)),
            Route("/healthz", api.healthz),
            Route("/metrics", reading(api.metrics)),
            Route("/api/v1/status", reading(api.status)),
            Route("/api/v1/runs", reading(api.runs)),
            Route("/api/v1/runs/{run_id:path}/transitions", reading(api.transitions)),
            Route("/api/v1/runs/{run_id:path}", reading(api.run)),
            Route("/api/v1/incidents", reading(api.incidents)),
            Route("/api/v1/incidents/{named}", reading(api.incident)),
            Route("/api/v1/incidents/{named}/ack", acting(api.ack), methods=["POST"]),
        ],
        exception_handlers={HTTPException: _plain_refusal, Exception: _plain_refusal},
    )


class _Api:
    """One method per question."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def index(self, _: Request) -> Response:
        return Response(_INDEX, media_type="text/plain")

    async def healthz(self, _: Request) -> Response:
        unwell = self._reads.unwell()
        return _json({"well": unwell is None, "reason": unwell}, status=200 if unwell is None else 503)

    async def metrics(self, _: Request) -> Response:
        # Thousands of series take tens of milliseconds: not on the loop that polls.
        return Response(await asyncio.to_thread(self._reads.expose), headers={"content-type": CONTENT_TYPE})

    async def status(self, _: Request) -> Response:
        return _json(self._reads.status())

    async def runs(self, _: Request) -> Response:
        return _json({"runs": self._reads.runs()})

    async def run(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        return _found(await self._reads.run(run_id), f"no run {run_id!r} is known")

    async def transitions(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        return _json({"transitions": await self._reads.transitions(run_id, _limit(request))})

    async def incidents(self, request: Request) -> Response:
        open_only = request.query_params.get("open", "") not in {"", "0", "false"}
        found = await self._reads.incidents(open_only=open_only, limit=_limit(request))
        return _json({"incidents": found})

    async def incident(self, request: Request) -> Response:
        number = self._number(request)
        return _found(await self._reads.incident(number), f"no incident {number} is known")

    async def ack(self, request: Request) -> Response:
        number = self._number(request)
        match await self._reads.ack(number, actor(request) or "somebody with the token"):
            case AckOutcome.DONE:
                return _found(await self._reads.incident(number), f"no incident {number} is known")
            case AckOutcome.UNKNOWN:
                return _error(404, f"no incident {number} is known")
            case AckOutcome.OVER:
                return _error(409, f"incident {number} is over already")

    def _number(self, request: Request) -> int:
        """By its number, or by the reference that its pages show: that has eight signs, which no number will ever have."""
        named = request.path_params["named"]
        if len(named) >= REFERENCE_SIGNS:
            number = self._reads.number_of(named.lower())
            if number is None:
                raise HTTPException(404, f"no open incident {named[:40]!r} is known")
            return number
        number = _whole(named)
        if number is None:
            raise HTTPException(
                404, "an incident is known by its number, or by the reference that its pages show"
            )
        return number


def _guarded(answer: _Answer, refuse: Callable[[Request], tuple[int, str] | None]) -> _Answer:
    async def guarded(request: Request) -> Response:
        refused = refuse(request)
        return await answer(request) if refused is None else _error(*refused)

    return guarded


def _limit(request: Request) -> int:
    limit = _whole(request.query_params.get("limit", "100"))
    if limit is None or not 1 <= limit <= _MAX_LIMIT:
        raise HTTPException(400, f"limit must be a number from 1 to {_MAX_LIMIT}")
    return limit


def _whole(text: str) -> int | None:
    # isdigit alone lets other scripts' digits through; and the store's integers end at 19 digits.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def _json(content: Any, status: int = 200) -> Response:
    return Response(
        _encode(content), status, media_type="application/json", headers={"cache-control": "no-store"}
    )


def _found(content: Any, otherwise: str) -> Response:
    return _error(404, otherwise) if content is None else _json(content)


def _error(status: int, text: str) -> Response:
    response = _json({"error": text}, status)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


async def _plain_refusal(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return _error(error.status_code, error.detail)
    return _error(500, "something failed inside watchtower; its log has the traceback")
