"""What PagerDuty and Slack accept, and what they make of it. Knows no HTTP, and nothing of how watchtower renders its messages.

The rules are the providers', written down a second time on purpose: a test against our own limits would prove nothing.
Source: PagerDuty developer documentation, "Send an Alert Event"; docs.slack.dev, "Incoming webhooks" and "Block Kit".
"""

import re
from typing import Any

import msgspec

_PD_MOST_BYTES = 512_000
_SLACK_MOST_TEXT = 40_000
_SLACK_MOST_BLOCK_TEXT = 13_000


class Accepted(msgspec.Struct, frozen=True):
    """One message that a provider took."""

    at: float
    provider: str  # pagerduty | slack | deadman
    path: str
    body: Any


class PagerDuty:
    """What PagerDuty would make of the events: one incident per key from its first trigger to its resolve."""

    def __init__(self) -> None:
        self.opened: list[str] = []  # a key again for each new incident
        self.open: dict[str, str] = {}  # key -> severity of its newest trigger
        self.resolved: list[str] = []

    def refusal(self, event: Any, size: int) -> str | None:
        """Why the event is invalid, None when it is not."""
        if size > _PD_MOST_BYTES:
            return "Event is larger than 512 KB"
        if not isinstance(event, dict):
            return "Event must be an object"
        if len(str(event.get("routing_key", ""))) != 32:
            return "'routing_key' must be 32 characters long"
        action = event.get("event_action")
        if action not in ("trigger", "acknowledge", "resolve"):
            return "'event_action' must be one of trigger, acknowledge, resolve"
        key = event.get("dedup_key")
        if (key is None and action != "trigger") or len(str(key or "")) > 255:
            return "'dedup_key' is missing or longer than 255 characters"
        return None if action != "trigger" else self._bad_payload(event.get("payload"))

    def _bad_payload(self, payload: Any) -> str | None:
        if not isinstance(payload, dict):
            return "'payload' is missing or not an object"
        summary = payload.get("summary")
        if not isinstance(summary, str) or not summary.strip() or len(summary) > 1024:
            return "'payload.summary' is missing, blank or longer than 1024 characters"
        if not str(payload.get("source") or "").strip():
            return "'payload.source' is missing or blank"
        if payload.get("severity") not in ("critical", "error", "warning", "info"):
            return "'payload.severity' must be one of critical, error, warning, info"
        if not isinstance(payload.get("custom_details", {}), dict):
            return "'payload.custom_details' must be an object"
        return None

    def take(self, event: dict[str, Any]) -> None:
        """Apply a valid event."""
        key = str(event.get("dedup_key"))
        if event["event_action"] == "trigger":
            if key not in self.open:
                self.opened.append(key)
            self.open[key] = event["payload"]["severity"]
        elif event["event_action"] == "resolve" and self.open.pop(key, None) is not None:
            self.resolved.append(key)


def slack_refusal(body: Any) -> str | None:
    """Slack's word for what is wrong with a webhook message, None when nothing is."""
    if not isinstance(body, dict):
        return "invalid_payload"
    text = body.get("text")
    if not isinstance(text, str) or not text.strip():
        return "no_text"
    if len(text) > _SLACK_MOST_TEXT or _pings(text):
        return "invalid_payload"
    blocks = body.get("blocks", [])
    if (
        not isinstance(blocks, list)
        or len(blocks) > 50
        or not all(_block_is_valid(block) for block in blocks)
    ):
        return "invalid_blocks"
    if sum(len(words) for words in _texts(blocks)) > _SLACK_MOST_BLOCK_TEXT:
        return "msg_blocks_too_long"
    return None


def _block_is_valid(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "header":
        text = block.get("text", {})
        return text.get("type") == "plain_text" and 1 <= len(text.get("text", "")) <= 150
    if kind == "section":
        text = block.get("text", {})
        return text.get("type") in ("mrkdwn", "plain_text") and _is_text(text.get("text"))
    if kind == "context":
        elements = block.get("elements", [])
        return 1 <= len(elements) <= 10 and all(_is_text(element.get("text")) for element in elements)
    return kind == "divider"


def _is_text(text: Any) -> bool:
    return isinstance(text, str) and 1 <= len(text) <= 3000 and not _pings(text)


def _pings(text: str) -> bool:
    # Stricter than Slack, which would do as it is told: none of our messages may ping anybody.
    return re.search(r"<[!@#]", text) is not None


def _texts(blocks: list[dict[str, Any]]) -> list[str]:
    texts = [block["text"]["text"] for block in blocks if isinstance(block.get("text"), dict)]
    return texts + [element["text"] for block in blocks for element in block.get("elements", [])]


def readable(message: Accepted) -> str:
    """The message as a person would read it on a phone."""
    body = message.body
    if message.provider == "slack":
        parts = _texts(body.get("blocks", [])) or [body["text"]]
        text = "\n".join(parts).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return text.replace("*", "")
    if message.provider == "pagerduty":
        payload = body.get("payload", {})
        details = "\n".join(f"{label}  {text}" for label, text in payload.get("custom_details", {}).items())
        return f"{body['event_action']}: {payload.get('summary', body.get('dedup_key'))}" + (
            f"\n{details}" if details else ""
        )
    return str(body)
