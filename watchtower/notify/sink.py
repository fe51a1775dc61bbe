"""The contract between the sender and a place that people look at: render a message, send it, say what became of it. Keeps no state about messages."""

from enum import IntEnum, StrEnum
from typing import Protocol

import msgspec

from watchtower.model import Owed


class Form(IntEnum):
    """How rich a message is; a provider that rejects one form is offered the next."""

    RICH = 0
    PLAIN = 1  # no blocks, no details, no links
    MINIMAL = 2  # one short ASCII line


class OutcomeKind(StrEnum):
    """What became of one try (closed; also a metric label)."""

    DELIVERED = "delivered"  # the provider said yes, in its own words
    RETRY = "retry"  # certainly not taken; try again later
    AMBIGUOUS = "ambiguous"  # may or may not have been taken; try again, labelled as a possible repeat
    BROKEN = "broken"  # credential, address or certificate is wrong: every message would fail
    REJECTED = "rejected"  # this payload is refused; another form may pass


class Outcome(msgspec.Struct, frozen=True):
    """What became of one try.

    Args:
        retry_after_s: seconds for which the provider wants silence from all of us, None where it did not say.
        detail: for people and the log, at most 200 characters; never holds a URL, a key or a token.
    """

    kind: OutcomeKind
    detail: str = ""
    retry_after_s: float | None = None


class Sink(Protocol):
    """A place we tell."""

    @property
    def name(self) -> str:
        """As in the settings; also the label in metrics and in the outbox."""
        ...

    @property
    def spacing_s(self) -> float:
        """Least seconds between two messages, by the provider's rate limit."""
        ...

    def render(self, owed: Owed, form: Form, *, now: float, may_repeat: bool = False) -> bytes:
        """Write the message.

        Pure and total: the same arguments give the same bytes, and whatever stands in the notice, it does not raise.

        Args:
            owed: what to tell.
            form: how richly.
            now: Unix seconds, for "4 min ago"; a message that waited for an hour must not say what was true then.
            may_repeat: an earlier try may have arrived, so a reader should not take this for news.
        """
        ...

    async def send(self, body: bytes, key: str) -> Outcome:
        """Hand over one rendered message; ends within 15 s, never raises but for cancellation, follows no redirect.

        Args:
            body: from `render`.
            key: the incident's dedup key.
        """
        ...
