"""Where things are unless told otherwise, and how a command is told where the daemon is. Opens none of them."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIG = Path("/etc/watchtower/watchtower.toml")
DEFAULT_URL = "http://127.0.0.1:9478"

UrlOption = Annotated[str, typer.Option(envvar="WATCHTOWER_URL", help="Where the daemon answers.")]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(envvar="WATCHTOWER_TOKEN_FILE", help="File with the daemon's web token, if it has one."),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        envvar="WATCHTOWER_CA_FILE", help="CA certificate of a daemon behind https with a CA of your own."
    ),
]
