"""Builds everything that a mistake in files can break, before anything starts or is swapped. Starts nothing and asks nobody."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from watchtower.config import Config
from watchtower.notify.deadman import DeadMan
from watchtower.notify.pagerduty import PagerDutySink
from watchtower.notify.sink import Sink
from watchtower.notify.slack import SlackSink
from watchtower.notify.transport import new_client
from watchtower.poller.targets import Agent, Targets
from watchtower.poller.tls import TlsError, client_context
from watchtower.secrets import SecretError, read_secret

_Built = TypeVar("_Built")


class StartError(Exception):
    """The daemon cannot start, or cannot take over new settings; `mistakes` holds one sentence each. Show them."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Closes(Protocol):
    """Something that holds connections."""

    async def aclose(self) -> None:
        """Give them up."""
        ...


class Parts:
    """What the settings' files came to: tokens, certificates, sinks, agents. `aclose` gives up what they hold."""

    def __init__(
        self,
        *,
        config: Config,
        context: ssl.SSLContext,
        poll_token: str | None,
        web_token: str | None,
        sinks: tuple[Sink, ...],
        deadman: DeadMan | None,
        client: Closes,
    ) -> None:
        self.config = config
        self.context = context
        self.poll_token = poll_token
        self.web_token = web_token
        self.sinks = sinks
        self.deadman = deadman
        self.targets = Targets(config.poll)
        self.agents: tuple[Agent, ...] = self.targets.read()
        self._client = client

    async def aclose(self) -> None:
        """Close the connections to sinks."""
        await self._client.aclose()


async def build(config: Config) -> Parts:
    """Read every file that the settings name.

    Returns:
        The parts, not yet in use. A target file that cannot be read is not a reason to fail: there may be others, and it may
        come; it is in `targets.broken`.

    Raises:
        StartError: with every mistake that was found.
    """
    mistakes: list[str] = []

    def attempt(key: str, make: Callable[[], _Built]) -> _Built | None:
        try:
            return make()
        except SecretError as error:
            mistakes.append(f"{key}: {error}")
        except TlsError as error:
            mistakes.append(str(error))
        return None

    client = new_client()
    context = attempt("poll", lambda: client_context(config.poll))
    poll_token = attempt("poll.token_file", lambda: _secret(config.poll.token_file))
    web_token = attempt("web.token_file", lambda: _secret(config.web.token_file))
    sinks: list[Sink | None] = [
        attempt(f"slack {settings.name!r}", lambda settings=settings: SlackSink(settings, client))  # type: ignore[misc]
        for settings in config.slack
    ]
    sinks += [
        attempt(f"pagerduty {settings.name!r}", lambda settings=settings: PagerDutySink(settings, client))  # type: ignore[misc]
        for settings in config.pagerduty
    ]
    switch = config.deadman
    deadman = None if switch is None else attempt("deadman.url_file", lambda: DeadMan(switch, client))
    if not config.poll.targets and not config.poll.target_files:
        mistakes.append("no agents: set poll.targets or poll.target_files, or there is nothing to watch")
    if mistakes or context is None:
        await client.aclose()
        raise StartError(tuple(mistakes))
    return Parts(
        config=config,
        context=context,
        poll_token=poll_token,
        web_token=web_token,
        sinks=tuple(sink for sink in sinks if sink is not None),
        deadman=deadman,
        client=client,
    )


def _secret(path: Path | None) -> str | None:
    return None if path is None else read_secret(path)
