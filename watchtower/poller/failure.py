"""Says why a poll brought no snapshot: the closed reason, and one sentence for the person who has to mend it. Asks nobody."""

import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import msgspec

from watchtower.model import PollFailure

_MAX_DETAIL = 160

# What openssl's verification says, in words that name the cure. Source: openssl, x509_vfy.h, X509_V_ERR_*.
_UNKNOWN_AUTHORITY = "its certificate is not signed by a CA that we trust (poll.ca_file)"
_VERIFY = {
    9: "its certificate is not valid yet: compare the clocks",
    10: "its certificate has expired",
    18: _UNKNOWN_AUTHORITY,
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
}
_WRONG_NAME = {62, 64}  # host name, address
# Parts of the names of openssl's errors. Source: openssl, sslerr.h; what they mean is for a client.
_TLS = (
    ("WRONG_VERSION_NUMBER", "what answers there does not speak TLS: is the agent's own TLS off?"),
    ("RECORD_LAYER_FAILURE", "what answers there does not speak TLS: is the agent's own TLS off?"),
    ("CERTIFICATE_REQUIRED", "the agent asks for a certificate of ours (poll.cert_file)"),
    ("UNKNOWN_CA", "the agent does not trust the CA of our certificate (poll.cert_file)"),
    ("ALERT_BAD_CERTIFICATE", "the agent refuses our certificate (poll.cert_file)"),
    ("CERTIFICATE_EXPIRED", "our certificate has expired (poll.cert_file)"),
)


class Failed(msgspec.Struct, frozen=True):
    """A poll that brought no snapshot. `detail` is one line without secrets; it may change while the reason stays."""

    reason: PollFailure
    detail: str | None = None


def failed(reason: PollFailure, detail: str) -> Failed:
    """A failure whose detail is fit for a log line and a terminal, whatever a stranger put into it."""
    line = "".join(sign if sign.isprintable() else "?" for sign in detail)
    return Failed(reason, line if len(line) <= _MAX_DETAIL else line[: _MAX_DETAIL - 1] + "…")


def why(error: BaseException, url: str) -> Failed:
    """Sort what httpx raised.

    Args:
        error: of the exchange, not a deadline of ours.
        url: of the agent.
    """
    if isinstance(error, httpx.TimeoutException):
        return failed(PollFailure.TIMEOUT, "no connection in time")
    causes = tuple(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return failed(PollFailure.TLS, _tls(cause, url))
    if isinstance(error, (httpx.RemoteProtocolError, httpx.DecodingError, httpx.StreamError)):
        return failed(PollFailure.BAD_REPLY, _garbled(error))
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return failed(PollFailure.REFUSED, f"nothing listens at {_place(url)}")
    return failed(PollFailure.UNREACHABLE, _unreachable(causes, url))


def refused_token(status: int, *, had_token: bool) -> Failed:
    """The agent wants another token than ours, or any at all."""
    cure = "the token in poll.token_file is not the agent's" if had_token else "set poll.token_file"
    return failed(PollFailure.UNAUTHORIZED, f"HTTP {status}: {cure}")


def _tls(error: ssl.SSLError, url: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAME:
            return f"its certificate is not for {urlsplit(url).hostname}"
        return _VERIFY.get(error.verify_code) or f"its certificate is not valid: {error.verify_message}"
    name = error.reason or ""
    return next((words for part, words in _TLS if part in name), None) or (
        name.lower().replace("_", " ") or "the handshake broke off"
    )


def _garbled(error: BaseException) -> str:
    # Of what h11 says only this much is its own; the rest quotes the stranger.
    if "disconnected" in str(error) or "closed" in str(error):
        return "the connection ended before an HTTP answer did: does the agent want https?"
    return "what answers there does not speak HTTP"


def _unreachable(causes: tuple[BaseException, ...], url: str) -> str:
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return f"the name {urlsplit(url).hostname} cannot be resolved ({cause.strerror})"
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno is not None and cause.strerror:
            return f"{_place(url)}: {cause.strerror}"
    return "the connection broke"


def _place(url: str) -> str:
    return urlsplit(url).netloc


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Walk what led to an error; several addresses of one host fail as a group."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        left += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
