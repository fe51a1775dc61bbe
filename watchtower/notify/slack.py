"""Tells a Slack channel through an incoming webhook. Cannot change or delete what it said: a webhook gives no handle back.

Source of the rules and limits: docs.slack.dev, "Sending messages using incoming webhooks" and "Block Kit reference".
"""

from pathlib import Path
from typing import Any

import httpx
import msgspec

from watchtower.model import NoticeAction, Owed, Severity
from watchtower.notify.page import Page, write_page
from watchtower.notify.sink import Form, Outcome, OutcomeKind
from watchtower.notify.transport import DEADLINE_S, check_addresses, of_status, post, read_url, redacted

HEADER_CHARS = 150
_SECTION_CHARS = 2900  # of 3000, counted after escaping
_TEXT_CHARS = 3900  # Slack advises 4000
_BLAMES_THE_HOOK = ("invalid_token", "user_not_found")
_MARK = {Severity.CRITICAL: "🔴", Severity.WARNING: "🟠", Severity.INFO: "🔵"}


class SlackSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One Slack channel.

    Args:
        name: of the sink, in metrics and in `status`.
        url_file: a file that holds the webhook's URL; the URL itself is the secret.
        min_severity: the least that is told here.
        runbook_url: of the runbook; each message links to its state's section.
    """

    name: str = "slack"
    url_file: str
    min_severity: Severity = Severity.WARNING
    runbook_url: str | None = None

    def __post_init__(self) -> None:
        """Refuse a link that is none.

        Raises:
            ValueError: names the key; shown to the user by the loader.
        """
        check_addresses(runbook_url=self.runbook_url)


class SlackSink:
    """One incoming webhook."""

    # Slack takes about one message a second from a webhook, and disables apps that go on after a 429.
    spacing_s = 1.0

    def __init__(
        self, settings: SlackSettings, client: httpx.AsyncClient, *, deadline_s: float = DEADLINE_S
    ) -> None:
        """Read the URL once.

        Raises:
            SecretError: the file cannot be used, or what it holds is no URL; show it and do not start.
        """
        self.name = settings.name
        self._runbook_url = settings.runbook_url
        self._url = read_url(Path(settings.url_file), "the URL of a Slack incoming webhook")
        self._client = client
        self._deadline_s = deadline_s

    def render(self, owed: Owed, form: Form, *, now: float, may_repeat: bool = False) -> bytes:
        """Blocks, then text alone, then one ASCII line; see the contract."""
        page = write_page(owed, now=now, may_repeat=may_repeat, runbook_url=self._runbook_url)
        if form is Form.MINIMAL:
            return msgspec.json.encode({"text": escape(page.short.encode("ascii", "replace").decode(), 1000)})
        if form is Form.PLAIN:
            return msgspec.json.encode({"text": escape(page.summary(_TEXT_CHARS), _TEXT_CHARS)})
        mark = "✅" if owed.action is NoticeAction.RESOLVE else _MARK[owed.notice.severity]
        body = {
            "text": escape(f"{mark} {page.summary(_TEXT_CHARS)}", _TEXT_CHARS),
            "blocks": _blocks(page, mark),
        }
        return msgspec.json.encode(body)

    async def send(self, body: bytes, key: str) -> Outcome:
        """Post to the webhook; only 200 with the body `ok` is a yes."""
        reply = await post(self._client, self._url, body, deadline_s=self._deadline_s)
        if isinstance(reply, Outcome):
            return redacted(reply, self._url)
        text = reply.text.strip()
        if reply.status == 200 and text == "ok":
            return Outcome(OutcomeKind.DELIVERED)
        if 200 <= reply.status < 300:
            return Outcome(
                OutcomeKind.AMBIGUOUS, "odd success: 200 without Slack's `ok`; is a proxy answering?"
            )
        if reply.status == 400 and text in _BLAMES_THE_HOOK:
            return Outcome(OutcomeKind.BROKEN, f"HTTP 400: {text}")
        return redacted(of_status(reply), self._url)


def escape(text: str, limit: int) -> str:
    """Text that pings nobody and fits: `&`, `<`, `>` escaped, at most `limit` characters after that, no entity cut.

    A run's name or a log line may hold `<!channel>`.
    """
    out: list[str] = []
    left = limit - 1
    for char in text:
        safe = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.get(char, char)
        if len(safe) > left:
            out.append("…")
            break
        out.append(safe)
        left -= len(safe)
    return "".join(out)


def _blocks(page: Page, mark: str) -> list[dict[str, Any]]:
    header = f"{mark} {page.title}"
    if len(header) > HEADER_CHARS:
        header = header[: HEADER_CHARS - 1] + "…"
    blocks: list[dict[str, Any]] = [{"type": "header", "text": {"type": "plain_text", "text": header}}]
    lines = [f"*{escape(fact.label, 40)}*  {escape(fact.text, 1000)}" for fact in page.facts]
    section = ""
    for line in lines:
        if section and len(section) + 1 + len(line) > _SECTION_CHARS:
            blocks.append(_section(section))
            section = ""
        section = f"{section}\n{line}" if section else line
    if section:
        blocks.append(_section(section))
    foot = f"incident {escape(page.reference, 40)}"
    if page.runbook_url:
        foot += f" · <{_link(page.runbook_url)}|runbook>"
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": foot}]})
    return blocks


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _link(url: str) -> str:
    return url.replace("<", "%3C").replace(">", "%3E").replace("|", "%7C").replace("&", "&amp;")
