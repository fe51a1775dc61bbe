"""The `watchtower check-config` command: every mistake in a configuration and in the files it names. Starts nothing and asks nobody."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watchtower.cli.places import DEFAULT_CONFIG

if TYPE_CHECKING:
    from watchtower.config import Config


def check_config(
    config: Annotated[Path, typer.Argument(help="The configuration (TOML).")] = DEFAULT_CONFIG,
) -> None:
    """Check a configuration: keys, values, and whether every token, certificate, webhook, target file and directory can be used.

    Asks no agent and sends no message. Run it as the user that the watcher runs as, or it may be able to read what the
    watcher is not.

    Exit status: 0 when it can be used, perhaps with warnings, 2 with one line per mistake when not.
    """
    import asyncio

    from watchtower.config import ConfigError, load

    mistakes: list[str] = []
    settings: Config | None
    try:
        settings = load(config)
    except ConfigError as error:
        mistakes += error.mistakes
        settings = error.rest
    warnings: list[str] = []
    summary = ""
    if settings is not None:
        found, warnings, summary = asyncio.run(_look(settings))
        if any(mistake.startswith(f"{config}: poll") for mistake in mistakes):
            # The agents may stand in what could not be read.
            found = [one for one in found if not one.startswith("no agents")]
        mistakes += [f"{config}: {one}" for one in found]
    for warning in warnings:
        print(f"{config}: warning: {warning}", file=sys.stderr)
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    if mistakes:
        raise typer.Exit(2)
    print(f"{config}: ok; {summary}")


async def _look(settings: "Config") -> tuple[list[str], list[str], str]:
    """Mistakes, warnings and a summary of what the settings name."""
    from watchtower.cli.check_files import certificate_words, directory_mistake, patterns_without_file
    from watchtower.clock import SystemClock
    from watchtower.daemon.parts import StartError, build
    from watchtower.poller.targets import Targets

    log, said = logging.getLogger("watchtower"), _Said()
    log.addHandler(said)
    mistakes: list[str] = []
    try:
        parts = await build(settings)
        await parts.aclose()
    except StartError as error:
        mistakes += error.mistakes
    targets = Targets(settings.poll)
    agents = targets.read()
    log.removeHandler(said)
    mistakes += [f"poll.target_files: {sentence}" for sentence in targets.broken]
    expired, warnings = certificate_words(settings.poll, SystemClock().now())
    mistakes += expired
    unusable = directory_mistake(settings.store.directory)
    if unusable is not None:
        mistakes.append(f"store.directory: {unusable}")
    for pattern in patterns_without_file(settings.poll.target_files):
        warnings.append(f"poll.target_files: {pattern} matches no file yet")
    sinks = [sink.name for sink in settings.slack] + [sink.name for sink in settings.pagerduty]
    told = ", ".join(sinks) or "nobody (no [[slack]], no [[pagerduty]])"
    return mistakes, [*warnings, *said.lines], f"{len(agents)} agents, tells {told}"


class _Said(logging.Handler):
    """What the rooms would log about the files, but for what is a mistake and told as such."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: dict[str, None] = {}  # in order, each once

    def emit(self, record: logging.LogRecord) -> None:
        if not str(record.msg).startswith("target_file_broken"):
            self.lines[record.getMessage()] = None
