"""The `watchtower ack` command: tells the daemon who has taken an incident on. Silences nothing and closes nothing."""

import getpass
import os
import sys
from typing import Annotated
from urllib.parse import quote

import typer

from watchtower.cli.places import DEFAULT_URL, CaFileOption, TokenFileOption, UrlOption
from watchtower.cli.status_ask import Daemon, NoAnswerError, NotFoundError
from watchtower.cli.status_words import clean

_WRONG, _NO_DAEMON = 2, 3


def ack(
    incident: Annotated[
        str, typer.Argument(help="Its number, or the reference that its pages show.", show_default=False)
    ],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Say that you have taken an incident on; `status` then shows your name, and asks for a look instead of an alarm.

    It holds until the incident ends or its severity rises. Exit status: 0 done, 2 no such open incident, 3 when the daemon
    cannot be asked or refuses.
    """
    try:
        daemon = Daemon.at(url, token_file, ca_file)
        done = daemon.post(f"/api/v1/incidents/{quote(incident, safe='')}/ack", _user())
    except NoAnswerError as error:
        print(f"watchtower: {error}", file=sys.stderr)
        raise typer.Exit(_NO_DAEMON) from None
    except NotFoundError as error:
        print(f"watchtower: {error}; `watchtower status` shows the open ones", file=sys.stderr)
        raise typer.Exit(_WRONG) from None
    about = done["incident"]
    named = f"incident {done['id']}, {about['uid'][:8]}"
    print(clean(f"{named} ({about['subject']}, {about['state']}) is acknowledged by {about['acked_by']}"))


def _user() -> str:
    """Whose name is written down; a header takes plain letters only."""
    try:
        name = os.environ.get("USER") or getpass.getuser()
    except (KeyError, OSError):  # a uid without an entry, as in a container
        name = ""
    plain = name.encode("ascii", "replace").decode()
    return clean(plain).strip() or f"uid {os.getuid()}"
