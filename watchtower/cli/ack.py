"""The `watchtower ack` command: tells the daemon who has taken an incident on. Silences nothing and closes nothing."""

import getpass
import http.client
import json
import ssl
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from watchtower.cli.places import DEFAULT_URL
from watchtower.cli.status_ask import NoAnswerError, NotFoundError, ask
from watchtower.secrets import SecretError, read_secret

_WRONG, _NO_DAEMON = 2, 3
_TIMEOUT_S = 5.0


def ack(
    incident: Annotated[
        str, typer.Argument(help="Its number, or the reference that its pages carry.", show_default=False)
    ],
    url: Annotated[
        str, typer.Option(envvar="WATCHTOWER_URL", help="Where the daemon answers.")
    ] = DEFAULT_URL,
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="WATCHTOWER_TOKEN_FILE", help="File with the daemon's web token, if it has one."),
    ] = None,
) -> None:
    """Say that you have taken an incident on; `status` then shows your name, and asks for a look instead of an alarm.

    It holds until the incident ends or its severity rises. Exit status: 0 done, 2 no such open incident, 3 when the daemon
    cannot be asked or refuses.
    """
    try:
        token = read_secret(token_file) if token_file is not None else None
        number = _number(incident, url, token)
        done = _post(url, f"/api/v1/incidents/{number}/ack", token)
    except (SecretError, NoAnswerError) as error:
        print(f"watchtower: {error}", file=sys.stderr)
        raise typer.Exit(_NO_DAEMON) from None
    except NotFoundError as error:
        print(f"watchtower: {error}", file=sys.stderr)
        raise typer.Exit(_WRONG) from None
    about = done["incident"]
    print(f"incident {number} ({about['subject']}, {about['state']}) is taken on by {about['acked_by']}")


def _number(incident: str, url: str, token: str | None) -> int:
    """The number of the open incident that a person means.

    Raises:
        NotFoundError: none, or several.
    """
    if incident.isascii() and incident.isdigit() and len(incident) < 8:
        return int(incident)
    _, answer = ask(url.rstrip("/"), "/api/v1/incidents?open=1&limit=1000", token)
    fits = [
        i["id"]
        for i in answer["incidents"]
        if len(incident) >= 4 and i["incident"]["uid"].startswith(incident.lower())
    ]
    if len(fits) != 1:
        raise NotFoundError(
            f"{incident!r} is {'several open incidents' if fits else 'no open incident'}; use its number"
        )
    return int(fits[0])


def _post(url: str, path: str, token: str | None) -> dict[str, Any]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(
            host, port or 443, timeout=_TIMEOUT_S, context=ssl.create_default_context()
        )
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port or 80, timeout=_TIMEOUT_S)
    )
    headers = {"X-Watchtower-User": getpass.getuser(), "Content-Length": "0"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.request("POST", parts.path.rstrip("/") + path, headers=headers)
        response = connection.getresponse()
        said = json.loads(response.read(1 << 20))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswerError(f"the watcher at {url} cannot be asked: {error}") from None
    finally:
        connection.close()
    if response.status in {404, 409}:
        raise NotFoundError(str(said.get("error")))
    if response.status != 200:
        raise NoAnswerError(
            f"the watcher at {url} refuses: {said.get('error', response.status)} (--token-file)"
        )
    return dict(said)
