"""Tells PagerDuty through its Events API v2: trigger and resolve under one key per incident. Never acknowledges, that is for people.

Source of the rules and limits: PagerDuty developer documentation, "Send an Alert Event" (Events API v2).
"""

from pathlib import Path
from typing import Any

import httpx
import msgspec

from watchtower.model import NoticeAction, Owed, Severity
from watchtower.notify.page import clean, write_page
from watchtower.notify.sink import Form, Outcome, OutcomeKind
from watchtower.notify.transport import DEADLINE_S, Reply, check_addresses, clip, of_status, post, redacted
from watchtower.secrets import SecretError, read_secret

US_URL = "https://events.pagerduty.com"
EU_URL = "https://events.eu.pagerduty.com"
KEY_CHARS = 32
SUMMARY_CHARS = 1024
# PagerDuty asks for a back-off of minutes after a 429, and often names no time.
_LEAST_WAIT_S = 60.0
_SEVERITY = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "info"}


class PagerDutySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One PagerDuty integration.

    Args:
        name: of the sink, in metrics and in `status`.
        routing_key_file: a file that holds the integration key of 32 characters. The service has to create incidents, too,
            not only alerts, or nobody is paged.
        min_severity: the least that is told here. A rise from warning to critical inside one incident does not page again
            in PagerDuty; so leave this at critical where PagerDuty is what wakes people.
        base_url: `https://events.eu.pagerduty.com` for accounts in the EU region.
        runbook_url: of the runbook; each message links to its state's section.
    """

    name: str = "pagerduty"
    routing_key_file: str
    min_severity: Severity = Severity.CRITICAL
    base_url: str = US_URL
    runbook_url: str | None = None

    def __post_init__(self) -> None:
        """Refuse addresses that are none.

        Raises:
            ValueError: names the key; shown to the user by the loader.
        """
        check_addresses(base_url=self.base_url, runbook_url=self.runbook_url)


class PagerDutySink:
    """One routing key."""

    spacing_s = 0.5

    def __init__(
        self, settings: PagerDutySettings, client: httpx.AsyncClient, *, deadline_s: float = DEADLINE_S
    ) -> None:
        """Read the key once.

        Raises:
            SecretError: the file cannot be used, or what it holds is no integration key; show it and do not start.
        """
        self.name = settings.name
        self._runbook_url = settings.runbook_url
        self._key = read_secret(Path(settings.routing_key_file))
        if len(self._key) != KEY_CHARS:
            raise SecretError(
                f"routing_key_file {settings.routing_key_file} holds {len(self._key)} characters, but a PagerDuty Events v2 integration key"
                f" has {KEY_CHARS}; copy the key of an `Events API v2` integration into it"
            )
        self._url = settings.base_url.rstrip("/") + "/v2/enqueue"
        self._client = client
        self._deadline_s = deadline_s

    def render(self, owed: Owed, form: Form, *, now: float, may_repeat: bool = False) -> bytes:
        """An event without its routing key, which is put in when it is sent: rendered bytes hold no secret."""
        notice = owed.notice
        event: dict[str, Any] = {
            "event_action": "resolve" if owed.action is NoticeAction.RESOLVE else "trigger",
            "dedup_key": notice.dedup_key,
        }
        # PagerDuty itself drops the copy of an event that it already has, so a repeat needs no label there.
        page = write_page(owed, now=now, may_repeat=False, runbook_url=self._runbook_url)
        minimal = form is Form.MINIMAL
        summary = page.short.encode("ascii", "replace").decode() if minimal else page.headline(SUMMARY_CHARS)
        payload: dict[str, Any] = {
            "summary": clip(summary, SUMMARY_CHARS),
            "source": _source(owed),
            "severity": _SEVERITY[notice.severity],
        }
        event["payload"] = payload
        if form is not Form.RICH:
            return msgspec.json.encode(event)
        payload["component"] = clip(clean(notice.subject), 200)
        payload["class"] = notice.state.value
        payload["custom_details"] = {
            "what": page.title,
            **{fact.label: clip(fact.text, 4000) for fact in page.facts},
            "incident": page.reference,
        }
        event["client"] = "watchtower"
        if page.runbook_url:
            event["links"] = [{"href": page.runbook_url, "text": "runbook"}]
        return msgspec.json.encode(event)

    async def send(self, body: bytes, key: str) -> Outcome:
        """Enqueue the event; only 202 that echoes our key is a yes."""
        with_key = b'{"routing_key":' + msgspec.json.encode(self._key) + b"," + body[1:]
        reply = await post(self._client, self._url, with_key, deadline_s=self._deadline_s)
        outcome = reply if isinstance(reply, Outcome) else _read(reply, key)
        return redacted(outcome, self._key)


def _read(reply: Reply, key: str) -> Outcome:
    if reply.status == 202:
        echoed = _json(reply.text)
        if echoed.get("status") == "success" and echoed.get("dedup_key", key) == key:
            return Outcome(OutcomeKind.DELIVERED)
        return Outcome(
            OutcomeKind.AMBIGUOUS, "odd success: 202 without PagerDuty's words; is a proxy answering?"
        )
    if 200 <= reply.status < 300:
        return Outcome(OutcomeKind.AMBIGUOUS, f"odd success: HTTP {reply.status}; is a proxy answering?")
    if reply.status == 429:
        return Outcome(OutcomeKind.RETRY, "HTTP 429", max(_LEAST_WAIT_S, reply.retry_after_s or 0.0))
    if reply.status == 400 and "routing_key" in reply.text:
        return Outcome(OutcomeKind.BROKEN, f"HTTP 400: {clip(reply.text, 160)}")
    return of_status(reply)


def _json(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _source(owed: Owed) -> str:
    view = owed.notice.view
    nodes = ", ".join(view.nodes[:4]) if view is not None else ""
    return clip(clean(nodes) or clean(owed.notice.subject), 200) or "watchtower"
