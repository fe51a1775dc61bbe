"""Asks the daemon one question over HTTP, with the standard library alone, so that `status` starts fast. Understands no answer."""

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT_S = 5.0
_MAX_BYTES = 64 * 1024 * 1024


class NoAnswerError(Exception):
    """The daemon did not answer, or not what was asked; one plain sentence for the person at the terminal."""


class NotFoundError(Exception):
    """The daemon answered that there is no such thing, or no more; its own sentence."""


class Daemon:
    """Where to ask, and as whom.

    Args:
        url: of the daemon, such as http://127.0.0.1:9478.
        token: of web.token_file, where one is set.
        ca_file: with https, the only CA to trust; None: what the system trusts.
    """

    def __init__(self, url: str, *, token: str | None = None, ca_file: Path | None = None) -> None:
        self._url = url
        self._token = token
        self._ca_file = ca_file

    @classmethod
    def at(cls, url: str, token_file: Path | None, ca_file: Path | None) -> "Daemon":
        """The daemon that a command's options name.

        Raises:
            NoAnswerError: the token cannot be read.
        """
        if token_file is None:
            return cls(url, ca_file=ca_file)
        from watchtower.secrets import SecretError, read_secret

        try:
            return cls(url, token=read_secret(token_file), ca_file=ca_file)
        except SecretError as error:
            raise NoAnswerError(f"--token-file: {error}") from None

    def get(self, path: str) -> tuple[bytes, dict[str, Any]]:
        """Read one path.

        Args:
            path: with its query, quoted.

        Returns:
            The body as it came, and read as JSON.

        Raises:
            NoAnswerError: show it; exit status 3.
            NotFoundError: 404.
        """
        return self._ask("GET", path, {})

    def post(self, path: str, user: str) -> dict[str, Any]:
        """Have something done in the name of a person, in ASCII; raises what `get` raises."""
        return self._ask("POST", path, {"X-Watchtower-User": user, "Content-Length": "0"})[1]

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[bytes, dict[str, Any]]:
        url = self._url
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if parts.scheme not in {"http", "https"} or not host:
            raise NoAnswerError(f"{url!r} is not the URL of a daemon; it looks like http://127.0.0.1:9478")
        path = parts.path.rstrip("/") + path
        headers = {"Accept": "application/json"} | headers
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            if parts.scheme == "https":
                status, body = _over_tls(host, port or 443, f"{method} {path}", headers, self._ca_file)
            else:
                status, body = _plain(host, port or 80, f"{method} {path}", headers)
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
    if status in {404, 409}:
        raise NotFoundError(str(said.get("error", "not found")))
    if status in {401, 403}:
        raise NoAnswerError(f"the watcher at {url} refuses: {said.get('error')} (--token-file)")
    if status != 200:
        raise NoAnswerError(f"the watcher at {url} failed: {said.get('error', f'HTTP {status}')}")
    return said


def _plain(host: str, port: int, wish: str, headers: dict[str, str]) -> tuple[int, bytes]:
    # http.client alone would cost half of what the whole command does.
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        named = f"[{host}]" if ":" in host else host
        lines = [f"{wish} HTTP/1.0", f"Host: {named}:{port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
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


def _over_tls(
    host: str, port: int, wish: str, headers: dict[str, str], ca_file: Path | None
) -> tuple[int, bytes]:
    import http.client
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise NoAnswerError(f"--ca-file: {ca_file} holds no PEM certificate") from None
    except OSError as error:
        raise NoAnswerError(f"--ca-file: cannot read {ca_file}: {error.strerror}") from None
    method, _, path = wish.partition(" ")
    connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(_MAX_BYTES)
    except http.client.HTTPException as error:
        raise OSError(type(error).__name__) from None
    except ssl.SSLCertVerificationError as error:
        cure = "" if error.verify_code in {62, 64} else " (--ca-file names the CA to trust)"
        raise OSError(f"its certificate is not to be trusted: {error.verify_message}{cure}") from None
    finally:
        connection.close()
