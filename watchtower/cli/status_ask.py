"""Asks the daemon one question over HTTP, with the standard library alone, so that `status` starts fast. Understands no answer."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT_S = 5.0
_MAX_BYTES = 64 * 1024 * 1024


class NoAnswerError(Exception):
    """The daemon did not answer, or not what was asked; one plain sentence for the person at the terminal."""


class NotFoundError(Exception):
    """The daemon answered that there is no such thing; its own sentence."""


def ask(url: str, path: str, token: str | None = None) -> tuple[bytes, dict[str, Any]]:
    """GET one path.

    Args:
        url: of the daemon, such as http://127.0.0.1:9478.
        path: with its query, quoted.
        token: of web.token_file, where one is set.

    Returns:
        The body as it came, and read as JSON.

    Raises:
        NoAnswerError: show it; exit status 3.
        NotFoundError: 404.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme not in {"http", "https"} or not host:
        raise NoAnswerError(f"{url!r} is not the URL of a daemon; it looks like http://127.0.0.1:9478")
    try:
        if parts.scheme == "https":
            status, body = _over_tls(host, port or 443, parts.path.rstrip("/") + path, token)
        else:
            status, body = _plain(host, port or 80, parts.path.rstrip("/") + path, token)
    except TimeoutError:
        raise NoAnswerError(f"the watcher at {url} does not answer within {_TIMEOUT_S:.0f} s") from None
    except ConnectionRefusedError:
        raise NoAnswerError(
            f"no watcher answers at {url}: is `watchtower serve` running? (--url or WATCHTOWER_URL says where)"
        ) from None
    except OSError as error:
        raise NoAnswerError(f"the watcher at {url} cannot be asked: {error.strerror or error}") from None
    return body, _understood(url, status, body)


def _understood(url: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise NoAnswerError(f"what answers at {url} is not a watchtower daemon (HTTP {status})")
    if status == 404:
        raise NotFoundError(str(said.get("error", "not found")))
    if status in {401, 403}:
        raise NoAnswerError(f"the watcher at {url} refuses: {said.get('error')} (--token-file)")
    if status != 200:
        raise NoAnswerError(f"the watcher at {url} failed: {said.get('error', f'HTTP {status}')}")
    return said


def _plain(host: str, port: int, path: str, token: str | None) -> tuple[int, bytes]:
    # http.client alone would cost half of what the whole command does.
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        named = f"[{host}]" if ":" in host else host
        lines = [f"GET {path} HTTP/1.0", f"Host: {named}:{port}", "Accept: application/json"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        connection.sendall("\r\n".join([*lines, "", ""]).encode("utf-8"))
        answer = bytearray()
        while piece := connection.recv(1 << 16):
            answer += piece
            if len(answer) > _MAX_BYTES:
                break
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return 0, b""
    return int(words[1]), body


def _over_tls(host: str, port: int, path: str, token: str | None) -> tuple[int, bytes]:
    import http.client

    connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.read(_MAX_BYTES)
    except http.client.HTTPException as error:
        raise OSError(type(error).__name__) from None
    finally:
        connection.close()
