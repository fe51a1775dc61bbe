"""Pings an outside service that speaks up when our pings stop. Does not decide whether we are well: whoever calls it does."""

from pathlib import Path

import httpx
import msgspec

from watchtower.notify.page import clean
from watchtower.notify.sink import Outcome, OutcomeKind
from watchtower.notify.transport import of_status, post, read_url, redacted

_DEADLINE_S = 10.0


class DeadManSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dead-man's switch.

    Args:
        url_file: a file that holds the ping URL (as of healthchecks.io or a service like it); `/fail` is appended to
            report trouble.
        interval_s: seconds between pings; the outside service should wait for several of them.
    """

    url_file: str
    interval_s: float = 60.0


class DeadMan:
    """One ping URL."""

    def __init__(
        self, settings: DeadManSettings, client: httpx.AsyncClient, *, deadline_s: float = _DEADLINE_S
    ) -> None:
        """Read the URL once.

        Raises:
            SecretError: the file cannot be used, or what it holds is no URL; show it and do not start.
        """
        self._url = read_url(Path(settings.url_file), "the ping URL of the dead-man's switch").rstrip("/")
        self._client = client
        self._deadline_s = deadline_s

    async def ping(self, trouble: str | None = None) -> Outcome:
        """Say that we are well, or what is wrong.

        Returns:
            `delivered` for any 2xx; never raises. A missed ping needs no retry: the next one is due soon, and silence
            is what the service is there to notice.
        """
        url = self._url if trouble is None else f"{self._url}/fail"
        body = clean(trouble or "ok").encode()[:10_000]
        reply = await post(
            self._client, url, body, content_type="text/plain; charset=utf-8", deadline_s=self._deadline_s
        )
        if isinstance(reply, Outcome):
            return redacted(reply, self._url)
        if 200 <= reply.status < 300:
            return Outcome(OutcomeKind.DELIVERED)
        return redacted(of_status(reply), self._url)
