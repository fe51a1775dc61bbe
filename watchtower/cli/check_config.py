"""The `watchtower check-config` command: every mistake in a configuration and in the files it names. Starts nothing and asks nobody."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from watchtower.cli.places import DEFAULT_CONFIG


def check_config(
    config: Annotated[Path, typer.Argument(help="The configuration (TOML).")] = DEFAULT_CONFIG,
) -> None:
    """Check a configuration: keys, values, and whether every token, certificate, webhook and target file can be used.

    Asks no agent and sends no message. Run it as the user that the watcher runs as, or it may be able to read what the
    watcher is not.

    Exit status: 0 when it can be used, 2 with one line per mistake when not.
    """
    import asyncio

    from watchtower.config import ConfigError, load
    from watchtower.daemon.parts import StartError, build

    async def look() -> tuple[list[str], str]:
        parts = await build(load(config))
        await parts.aclose()
        told = ", ".join(sink.name for sink in parts.sinks) or "nobody (no [[slack]], no [[pagerduty]])"
        return list(parts.targets.broken), f"{config}: ok; {len(parts.agents)} agents, tells {told}"

    try:
        mistakes, summary = asyncio.run(look())
    except ConfigError as error:
        mistakes, summary = list(error.mistakes), ""
    except StartError as error:
        mistakes, summary = [f"{config}: {mistake}" for mistake in error.mistakes], ""
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    if mistakes:
        raise typer.Exit(2)
    print(summary)
