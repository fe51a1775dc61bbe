"""What of a sink's settings, and of the secrets that they name, is refused before anything is sent."""

from pathlib import Path

import httpx
import pytest

from watchtower.notify.deadman import DeadMan, DeadManSettings
from watchtower.notify.pagerduty import PagerDutySettings, PagerDutySink
from watchtower.notify.slack import SlackSettings, SlackSink
from watchtower.secrets import SecretError

NO_ADDRESSES = [
    "http://[::bad",
    "no-scheme",
    "ftp://x/y",
    "http://exa mple/",
    "https://",
    "http://x:99999/",
    "//host/x",
]


@pytest.mark.parametrize("url", [*NO_ADDRESSES, "xyz"])
def test_a_file_without_a_web_address_is_refused_before_the_start_and_not_quoted(
    tmp_path: Path, url: str
) -> None:
    file = tmp_path / "hook"
    file.write_text(url + "\n")
    client = httpx.AsyncClient()
    for make in (
        lambda: SlackSink(SlackSettings(url_file=str(file)), client),
        lambda: DeadMan(DeadManSettings(url_file=str(file)), client),
    ):
        with pytest.raises(SecretError, match=f"url_file {file}, but it holds no web address") as caught:
            make()
        assert url not in str(caught.value).replace("https://…", "").replace(str(file), "")


def test_addresses_in_the_settings_have_to_be_some() -> None:
    with pytest.raises(ValueError, match="base_url must be a web address"):
        PagerDutySettings(routing_key_file="k", base_url="events")
    with pytest.raises(ValueError, match="runbook_url must be a web address"):
        PagerDutySettings(routing_key_file="k", runbook_url="docs/alerts.md")
    with pytest.raises(ValueError, match="runbook_url must be a web address"):
        SlackSettings(url_file="u", runbook_url="docs/alerts.md")
    assert SlackSettings(url_file="u", runbook_url="http://wiki/x").runbook_url == "http://wiki/x"


def test_a_missing_or_wrong_secret_is_one_sentence_that_names_the_file(tmp_path: Path) -> None:
    client = httpx.AsyncClient()
    absent = tmp_path / "absent"
    with pytest.raises(SecretError, match=str(absent)):
        SlackSink(SlackSettings(url_file=str(absent)), client)
    short = tmp_path / "short"
    short.write_text("abc")
    with pytest.raises(SecretError, match=rf"{short} holds 3 characters"):
        PagerDutySink(PagerDutySettings(routing_key_file=str(short)), client)
