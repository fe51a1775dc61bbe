"""Decides who may ask what over HTTP: by token, by peer, by the name a browser used. Answers no question itself."""

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from watchtower.secrets import same_secret
from watchtower.web.settings import WebSettings, is_loopback, split_address

USER_HEADER = "x-watchtower-user"
_MAX_USER = 64


class Access:
    """The door. Every refusal is a status and one sentence.

    Args:
        settings: `[web]`.
        token: the secret of `token_file`, or None.
    """

    def __init__(self, settings: WebSettings, token: str | None) -> None:
        self.adopt(settings, token)

    def adopt(self, settings: WebSettings, token: str | None) -> None:
        """Decide by other settings from now on."""
        self._token = token
        self._open = settings.insecure
        named = {"localhost", split_address(settings.listen)[0].lower()}
        if settings.public_url is not None:
            named.add((urlsplit(settings.public_url).hostname or "").lower())
        self._names = named

    def refuse_reading(self, request: Request) -> tuple[int, str] | None:
        """Why this request may not read, as status and sentence; None when it may."""
        if self._token is not None:
            if same_secret(_bearer(request), self._token):
                return None
            return 401, "give the token of web.token_file as `Authorization: Bearer …`"
        if not self._open and not self._is_named(request):
            # A web page elsewhere can point its own name at 127.0.0.1 and so read what only this machine may.
            return 403, "asked under a name that is not this daemon's; use its address, or set web.public_url"
        return None

    def refuse_acting(self, request: Request) -> tuple[int, str] | None:
        """Why this request may not change anything, as status and sentence; None when it may."""
        refused = self.refuse_reading(request)
        if refused is not None or self._token is not None:
            return refused
        if request.client is None or not is_loopback(request.client.host):
            return 403, "without web.token_file only this machine itself may do this"
        if not actor(request):
            # A form on a foreign page cannot set a header of its own.
            return 403, f"say who you are in the header {USER_HEADER.title()}"
        return None

    def _is_named(self, request: Request) -> bool:
        host = (request.url.hostname or "").lower()
        if host in self._names:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


def actor(request: Request) -> str:
    """The person that a request speaks for, as far as it says; empty where it does not. Printable, at most 64 characters."""
    said = request.headers.get(USER_HEADER, "")
    return "".join(sign for sign in said if sign.isprintable()).strip()[:_MAX_USER]


def _bearer(request: Request) -> str:
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""
