"""The `watchtower serve` command: logging, then the daemon. Decides nothing."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from watchtower.cli.places import DEFAULT_CONFIG

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def serve(
    config: Annotated[
        Path, typer.Option(help="The configuration (TOML); docs/config.md lists every key.")
    ] = DEFAULT_CONFIG,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the watcher: poll the agents, judge every run each round, record, and tell people.

    SIGHUP reads the configuration again (a mistake in it keeps what is in use, and says so); SIGTERM ends within ten
    seconds. It goes on where it stopped: nothing is learned or paged twice.

    Exit status: 0 after SIGTERM, 1 when it broke and should be started again, 2 when a person has to mend something first
    (the message says what).
    """
    if log_level.lower() not in _LEVELS:
        print(
            f"watchtower: --log-level must be one of {', '.join(_LEVELS)}, got {log_level!r}", file=sys.stderr
        )
        raise typer.Exit(2)
    # The journal puts the time in front of each line itself.
    stamp = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
    logging.basicConfig(
        level=_LEVELS[log_level.lower()],
        format=f"{stamp}%(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    from watchtower.daemon.lifecycle import serve as run

    raise typer.Exit(run(config))
