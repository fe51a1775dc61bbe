"""Those who are paged in a simulation: the local stand-in for Slack and PagerDuty, and what arrived there. Refuses what the providers would refuse."""

import json

from watchtower.clock import Clock
from watchtower.simulate.play import Message
from watchtower.simulate.receivers import Accepted, Receiver, readable

_PAGERDUTY, _SLACK = "pagerduty", "slack"
_REPEAT = "may be a repeat"  # as notify/page.py labels it


class Inbox:
    """A running receiver; `close` it."""

    sinks = (_PAGERDUTY, _SLACK)

    def __init__(self, clock: Clock) -> None:
        self._receiver = Receiver(clock=clock)
        self._receiver.__enter__()

    @property
    def slack_url(self) -> str:
        """The incoming webhook."""
        return self._receiver.slack_url

    @property
    def pagerduty_url(self) -> str:
        """The base URL of the Events API."""
        return self._receiver.url

    def messages(self) -> list[Message]:
        """All that was accepted so far, oldest first."""
        seen: set[tuple[object, object]] = set()
        messages = []
        for accepted in list(self._receiver.accepted):
            shown, event = (
                _shown(accepted),
                (accepted.body.get("dedup_key"), accepted.body.get("event_action")),
            )
            repeat = event in seen if accepted.provider == _PAGERDUTY else _REPEAT in shown
            seen.add(event)
            messages.append(Message(accepted.provider, shown, repeat))
        return messages

    def refused(self) -> list[tuple[str, str]]:
        """(provider, why) of each message that the provider would not have taken."""
        return list(self._receiver.refused)

    def close(self) -> None:
        """Stop receiving."""
        self._receiver.stop()


def _shown(accepted: Accepted) -> str:
    """What a person sees of it: Slack's text, and PagerDuty's event without the details."""
    if accepted.provider != _PAGERDUTY:
        return readable(accepted)
    payload = {
        name: value for name, value in accepted.body.get("payload", {}).items() if name != "custom_details"
    }
    event = {
        name: value for name, value in accepted.body.items() if name not in {"payload", "links", "images"}
    }
    return json.dumps(event | {"payload": payload}, indent=2, ensure_ascii=False)
