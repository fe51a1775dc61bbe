"""One HTTP POST with an overall deadline, no redirects and no secret in any word about it. Does not know what an answer means to a sink."""

import asyncio
import logging
import math
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec

from watchtower.notify.sink import Outcome, OutcomeKind
from watchtower.secrets import SecretError, read_secret

# A server that drips bytes keeps every single socket operation short; only an overall deadline ends such a try.
DEADLINE_S = 15.0
_CONNECT_S = 5.0
_LONGEST_RETRY_AFTER_S = 900.0
_MOST_BODY = 4096


class Reply(msgspec.Struct, frozen=True):
    """An answer that came: status, the beginning of its body, and the silence it asks for."""

    status: int
    text: str
    retry_after_s: float | None = None


def is_web_address(text: str) -> bool:
    """Whether a text is an http or https URL with a host, as far as can be told without asking."""
    try:
        parts = urlsplit(text)
        usable = parts.port is None or parts.port > 0
    except ValueError:
        return False
    return usable and parts.scheme in ("http", "https") and bool(parts.hostname) and not _has_space(text)


def check_addresses(**addresses: str | None) -> None:
    """Refuse settings that should be web addresses and are not; None is not set.

    Raises:
        ValueError: names the key; shown to the user by the loader.
    """
    for key, address in addresses.items():
        if address is not None and not is_web_address(address):
            raise ValueError(
                f"{key} must be a web address that begins with https://, got {clip(address, 60)!r}"
            )


def read_url(path: Path, what: str) -> str:
    """Read a URL that is a secret.

    Args:
        path: holds it alone on one line.
        what: it is, and where it comes from, for the sentence.

    Raises:
        SecretError: the file cannot be used, or what it holds is no web address; show it and do not start.
    """
    url = read_secret(path)
    if not is_web_address(url):
        raise SecretError(f"{what} is wanted in url_file {path}, but it holds no web address (https://…)")
    return url


def new_client(ca_file: str | None = None) -> httpx.AsyncClient:
    """A client for outgoing messages: proxies from the environment, the system's certificates plus `ca_file`, no redirects.

    A followed redirect turns a POST into a GET that "succeeds". httpx writes each URL at INFO, and a Slack URL is a secret.
    """
    for name in ("httpx", "httpcore"):
        logger = logging.getLogger(name)
        # DEBUG of httpcore would print headers and targets, too: these two never speak below WARNING.
        logger.setLevel(max(logging.WARNING, logger.level))
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return httpx.AsyncClient(
        verify=context,
        trust_env=True,
        follow_redirects=False,
        timeout=httpx.Timeout(DEADLINE_S, connect=_CONNECT_S),
    )


async def post(
    client: httpx.AsyncClient,
    url: str,
    body: bytes,
    *,
    content_type: str = "application/json",
    deadline_s: float = DEADLINE_S,
) -> Reply | Outcome:
    """Send one body.

    Args:
        client: from `new_client`.
        url: may hold a secret; it appears in nothing that is returned.
        body: as rendered.
        content_type: of the body.
        deadline_s: for the whole try, connecting included.

    Returns:
        A Reply when an answer came, else the Outcome: `retry` when certainly nothing was taken (no connection),
        `broken` when no message could ever pass (certificate, address), `ambiguous` for everything else.
    """
    try:
        async with asyncio.timeout(deadline_s):
            async with client.stream(
                "POST", url, content=body, headers={"Content-Type": content_type}, follow_redirects=False
            ) as response:
                text = await _beginning(response)
                return Reply(response.status_code, text, _retry_after(response.headers))
    except TimeoutError:
        return Outcome(OutcomeKind.AMBIGUOUS, f"no answer within {deadline_s:g} s")
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError) as error:
        return Outcome(OutcomeKind.BROKEN, f"the address cannot be used ({type(error).__name__})")
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
        return _not_connected(error)
    except (httpx.HTTPError, httpx.StreamError) as error:
        # The request may have been read before the connection broke.
        return Outcome(OutcomeKind.AMBIGUOUS, f"the connection broke ({type(error).__name__})")


def of_status(reply: Reply) -> Outcome:
    """What a status means where a provider has said nothing special about it."""
    detail = f"HTTP {reply.status}: {clip(reply.text, 160)}" if reply.text else f"HTTP {reply.status}"
    status = reply.status
    if status in (408, 425, 429):
        return Outcome(OutcomeKind.RETRY, detail, reply.retry_after_s)
    if status in (401, 403, 404, 407, 410) or 300 <= status < 400:
        return Outcome(OutcomeKind.BROKEN, detail)
    if 400 <= status < 500:
        return Outcome(OutcomeKind.REJECTED, detail)
    return Outcome(OutcomeKind.AMBIGUOUS, detail, reply.retry_after_s)


def redacted(outcome: Outcome, *secrets: str) -> Outcome:
    """The outcome without any of the secrets in its detail: a proxy or provider may echo what it was sent."""
    detail = outcome.detail
    for secret in secrets:
        detail = detail.replace(secret, "…")
    return Outcome(outcome.kind, clip(detail, 200), outcome.retry_after_s)


def clip(text: str, limit: int) -> str:
    """One line of at most `limit` characters, an ellipsis where something is missing."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


async def _beginning(response: httpx.Response) -> str:
    parts = b""
    async for chunk in response.aiter_bytes():
        parts += chunk
        if len(parts) >= _MOST_BODY:
            break
    return parts[:_MOST_BODY].decode("utf-8", "replace")


def _has_space(text: str) -> bool:
    return any(char.isspace() or not char.isprintable() for char in text)


def _not_connected(error: httpx.TransportError) -> Outcome:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Outcome(OutcomeKind.BROKEN, f"its certificate is not trusted ({cause.verify_message})")
        cause = cause.__cause__ or cause.__context__
    return Outcome(OutcomeKind.RETRY, f"no connection ({type(error).__name__})")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    raw = headers.get("Retry-After", "").strip()
    if not raw:
        return None
    try:
        seconds = float(raw)
    except ValueError:
        seconds = _until_date(raw, headers.get("Date", ""))
    return None if math.isnan(seconds) else min(_LONGEST_RETRY_AFTER_S, max(1.0, seconds))


def _until_date(moment: str, date: str) -> float:
    # Both from the server, so that a difference between its clock and ours does no harm.
    try:
        return (parsedate_to_datetime(moment) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError):
        return math.nan
