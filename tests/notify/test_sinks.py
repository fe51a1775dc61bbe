"""Slack and PagerDuty as they answer on good days and bad, on real sockets, against receivers that enforce their rules."""

import asyncio
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trustme
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.fakes.sinks import T0, a_view, an_owed
from watchtower.model import NoticeAction, RunState, Severity, Suspect
from watchtower.notify.deadman import DeadMan, DeadManSettings
from watchtower.notify.pagerduty import PagerDutySettings, PagerDutySink
from watchtower.notify.sink import Form, Outcome, OutcomeKind
from watchtower.notify.slack import SlackSettings, SlackSink, escape
from watchtower.notify.transport import Reply, new_client, of_status, post
from watchtower.simulate.provider_rules import PagerDuty, slack_refusal
from watchtower.simulate.receivers import Mode, Receiver

CANARY = "canary5ecret" + "0" * 20  # 32 characters, as PagerDuty wants them


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client() as made:
        yield made


def slack(tmp_path: Path, url: str, client: httpx.AsyncClient, deadline_s: float = 5.0) -> SlackSink:
    file = tmp_path / "slack-url"
    file.write_text(url + "\n")
    return SlackSink(
        SlackSettings(url_file=str(file), runbook_url="https://wiki/a|b"), client, deadline_s=deadline_s
    )


def pagerduty(tmp_path: Path, url: str, client: httpx.AsyncClient, deadline_s: float = 5.0) -> PagerDutySink:
    file = tmp_path / "pd-key"
    file.write_text(CANARY + "\n")
    settings = PagerDutySettings(routing_key_file=str(file), base_url=url, runbook_url="https://wiki/")
    return PagerDutySink(settings, client, deadline_s=deadline_s)


async def tell(sink: SlackSink | PagerDutySink, form: Form = Form.RICH, **changes: Any) -> Outcome:
    owed = an_owed(**changes)
    return await sink.send(sink.render(owed, form, now=T0), owed.notice.dedup_key)


@pytest.mark.parametrize("form", list(Form))
async def test_slack_takes_every_form(
    receiver: Receiver, client: httpx.AsyncClient, tmp_path: Path, form: Form
) -> None:
    assert (await tell(slack(tmp_path, receiver.slack_url, client), form)).kind is OutcomeKind.DELIVERED
    assert receiver.refused == []
    (message,) = receiver.accepted
    assert "slurm-4411" in message.body["text"]
    assert ("blocks" in message.body) is (form is Form.RICH)


@pytest.mark.parametrize("form", list(Form))
async def test_pagerduty_opens_one_incident_and_closes_it_by_the_same_key_in_every_form(
    receiver: Receiver, client: httpx.AsyncClient, tmp_path: Path, form: Form
) -> None:
    sink = pagerduty(tmp_path, receiver.url, client)
    key = an_owed().notice.dedup_key
    for action in (NoticeAction.TRIGGER, NoticeAction.TRIGGER, NoticeAction.UPDATE):
        assert (await tell(sink, form, action=action)).kind is OutcomeKind.DELIVERED
    assert receiver.pagerduty.opened == [key]
    assert (await tell(sink, form, action=NoticeAction.RESOLVE)).kind is OutcomeKind.DELIVERED
    assert receiver.pagerduty.open == {}
    assert receiver.pagerduty.resolved == [key]
    assert receiver.refused == []


def test_a_pagerduty_event_carries_the_facts_and_no_key_before_it_is_sent(tmp_path: Path) -> None:
    sink = pagerduty(tmp_path, "https://pd", httpx.AsyncClient())
    body = sink.render(an_owed(), Form.RICH, now=T0)
    assert CANARY.encode() not in body
    event = msgspec.json.decode(body)
    assert event["payload"]["severity"] == "critical"
    assert event["payload"]["source"] == "gpu-a, gpu-b"
    assert list(event["payload"]["custom_details"])[:4] == ["what", "since", "step", "ranks"]
    assert event["payload"]["custom_details"]["ranks"].endswith("(gpu-a, gpu-b): 16 spinning")
    assert event["payload"]["summary"].index("[01234567]; since 21:58:26 UTC") < 80
    assert event["links"] == [{"href": "https://wiki/#deadlocked", "text": "runbook"}]


@pytest.mark.parametrize(
    ("mode", "both_say"),
    [
        (Mode.THROTTLE, OutcomeKind.RETRY),
        (Mode.ERROR, OutcomeKind.AMBIGUOUS),
        (Mode.ACCEPT_THEN_DROP, OutcomeKind.AMBIGUOUS),
        (Mode.REDIRECT, OutcomeKind.BROKEN),
        (Mode.HTML, OutcomeKind.AMBIGUOUS),
        (Mode.GONE, OutcomeKind.BROKEN),
        (Mode.HANG, OutcomeKind.AMBIGUOUS),
    ],
)
async def test_each_bad_day_of_a_provider_is_known_for_what_it_is(
    receiver: Receiver,
    client: httpx.AsyncClient,
    tmp_path: Path,
    mode: Mode,
    both_say: OutcomeKind,
) -> None:
    receiver.behave("slack", mode)
    receiver.behave("pagerduty", mode)
    assert (await tell(slack(tmp_path, receiver.slack_url, client, 0.3))).kind is both_say
    assert (await tell(pagerduty(tmp_path, receiver.url, client, 0.3))).kind is both_say
    assert receiver.requests == 2, "a redirect was followed, or something was sent twice"


async def test_a_throttle_hands_on_how_long_to_be_silent_and_pagerduty_at_least_a_minute(
    receiver: Receiver, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    receiver.behave("slack", Mode.THROTTLE)
    receiver.behave("pagerduty", Mode.THROTTLE)
    assert (await tell(slack(tmp_path, receiver.slack_url, client))).retry_after_s == 2.0
    assert (await tell(pagerduty(tmp_path, receiver.url, client))).retry_after_s == 60.0


async def test_nobody_listening_is_certainly_not_delivered(
    client: httpx.AsyncClient, tmp_path: Path, receiver: Receiver
) -> None:
    receiver.stop()
    assert (await tell(slack(tmp_path, receiver.slack_url, client))).kind is OutcomeKind.RETRY


async def test_a_refused_payload_is_rejected_and_a_refused_key_is_broken(
    receiver: Receiver, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    sink = pagerduty(tmp_path, receiver.url, client)
    assert (await sink.send(b'{"event_action":"resolve"}', "k")).kind is OutcomeKind.REJECTED
    sink._key = "short"
    assert (await sink.send(b'{"event_action":"resolve","dedup_key":"k"}', "k")).kind is OutcomeKind.BROKEN
    hook = slack(tmp_path, receiver.slack_url, client)
    assert (await hook.send(b'{"text":""}', "k")).kind is OutcomeKind.REJECTED


@pytest.mark.parametrize("url", ["http://[::bad", "no-scheme", "ftp://x/y", "http://exa mple/"])
async def test_an_address_that_cannot_be_used_is_broken_and_never_an_exception(
    client: httpx.AsyncClient, url: str
) -> None:
    outcome = await post(client, url, b"{}")
    assert isinstance(outcome, Outcome)
    assert outcome.kind in (OutcomeKind.BROKEN, OutcomeKind.RETRY)
    assert url not in outcome.detail


async def test_a_server_that_drips_is_left_at_the_overall_deadline(
    client: httpx.AsyncClient,
) -> None:
    stop = threading.Event()

    class Dripping(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            while not stop.wait(0.05):
                try:
                    self.wfile.write(b".")
                except OSError:
                    return

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    server = HTTPServer(("127.0.0.1", 0), Dripping)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    try:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await post(client, f"http://127.0.0.1:{server.server_address[1]}/", b"{}", deadline_s=0.4)
        assert isinstance(answer, Outcome)
        assert answer.kind is OutcomeKind.AMBIGUOUS
        assert loop.time() - began < 2
    finally:
        stop.set()
        thread.join()
        server.server_close()


async def test_a_certificate_that_nobody_vouches_for_is_broken_and_gets_no_byte(
    client: httpx.AsyncClient,
) -> None:
    taken: list[bytes] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(2))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server = HTTPServer(("127.0.0.1", 0), Taking)
    # The handshake in the handler's thread: a failed one is the client's to report, not ours.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    try:
        answer = await post(client, f"https://127.0.0.1:{server.server_address[1]}/", b"{}", deadline_s=5)
    finally:
        thread.join()
        server.server_close()
    assert isinstance(answer, Outcome)
    assert answer.kind is OutcomeKind.BROKEN
    assert "not trusted" in answer.detail
    assert taken == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (408, OutcomeKind.RETRY),
        (425, OutcomeKind.RETRY),
        (429, OutcomeKind.RETRY),
        (400, OutcomeKind.REJECTED),
        (413, OutcomeKind.REJECTED),
        (422, OutcomeKind.REJECTED),
        (401, OutcomeKind.BROKEN),
        (403, OutcomeKind.BROKEN),
        (404, OutcomeKind.BROKEN),
        (407, OutcomeKind.BROKEN),
        (410, OutcomeKind.BROKEN),
        (301, OutcomeKind.BROKEN),
        (500, OutcomeKind.AMBIGUOUS),
        (503, OutcomeKind.AMBIGUOUS),
    ],
)
def test_a_status_means_what_the_table_says(status: int, kind: OutcomeKind) -> None:
    assert of_status(Reply(status, "")).kind is kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (202, b'{"status":"success","dedup_key":"k"}', OutcomeKind.DELIVERED),
        (202, b'{"status":"success","dedup_key":"another"}', OutcomeKind.AMBIGUOUS),
        (202, b'{"status":"queued"}', OutcomeKind.AMBIGUOUS),
        (202, b"<html>welcome</html>", OutcomeKind.AMBIGUOUS),
        (200, b'{"status":"success","dedup_key":"k"}', OutcomeKind.AMBIGUOUS),
    ],
)
async def test_pagerduty_said_yes_only_if_it_said_so_itself_and_about_our_key(
    tmp_path: Path, status: int, body: bytes, kind: OutcomeKind
) -> None:
    answering = httpx.MockTransport(lambda _: httpx.Response(status, content=body))
    async with httpx.AsyncClient(transport=answering) as client:
        assert (await pagerduty(tmp_path, "https://pd", client).send(b'{"a":1}', "k")).kind is kind


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("7", 7.0),
        ("0", 1.0),
        ("100000", 900.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("soon", None),
        ("nan", None),
        ("", None),
    ],
)
async def test_retry_after_is_read_as_seconds_or_as_a_date_and_within_reason(
    said: str, waits: float | None
) -> None:
    headers = {"Retry-After": said, "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    answering = httpx.MockTransport(lambda _: httpx.Response(429, headers=headers))
    async with httpx.AsyncClient(transport=answering) as client:
        reply = await post(client, "https://x/", b"{}")
    assert isinstance(reply, Reply)
    assert reply.retry_after_s == waits


async def test_the_dead_mans_switch_hears_that_we_are_well_or_what_is_wrong(
    receiver: Receiver, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "ping"
    file.write_text(f"{receiver.url}/ping/{CANARY}\n")
    switch = DeadMan(DeadManSettings(url_file=str(file)), client)
    assert (await switch.ping()).kind is OutcomeKind.DELIVERED
    assert (await switch.ping("no round for 40 s")).kind is OutcomeKind.DELIVERED
    assert [(m.path.rpartition("/")[2], m.body) for m in receiver.accepted] == [
        (CANARY, "ok"),
        ("fail", "no round for 40 s"),
    ]
    receiver.behave("deadman", Mode.ERROR)
    assert (await switch.ping()).kind is OutcomeKind.AMBIGUOUS


async def test_a_secret_is_in_no_log_and_in_no_word_about_a_failure(
    receiver: Receiver, client: httpx.AsyncClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sinks = (
        slack(tmp_path, f"{receiver.url}/services/T0/B0/{CANARY}", client, 0.3),
        pagerduty(tmp_path, receiver.url, client, 0.3),
    )
    said = []
    for mode in Mode:
        receiver.behave("slack", mode)
        receiver.behave("pagerduty", mode)
        said += [repr(await tell(sink)) for sink in sinks]
    assert CANARY not in "\n".join(said) + caplog.text
    echo = Outcome(OutcomeKind.REJECTED, f"invalid: {CANARY}")
    sinks[1]._url = f"{receiver.url}/nowhere/{CANARY}"
    assert CANARY not in repr(await tell(sinks[1]))
    assert CANARY in repr(echo), "the canary could not be seen at all"


@pytest.mark.parametrize(
    ("text", "limit", "safe"),
    [
        ("<!channel> & co", 100, "&lt;!channel&gt; &amp; co"),
        ("a" * 10, 5, "aaaa…"),
        ("aaa&b", 5, "aaa…"),
        ("quotes ' \" ` stay", 100, "quotes ' \" ` stay"),
    ],
)
def test_slack_text_pings_nobody_and_no_entity_is_cut(text: str, limit: int, safe: str) -> None:
    assert escape(text, limit) == safe


ANY_TEXT = st.text(st.characters(), max_size=2000)


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ANY_TEXT,
    st.text(st.sampled_from("<&>|!@# x\n"), max_size=3000),
    st.integers(0, 200),
    st.sampled_from(Form),
)
def test_whatever_a_run_is_called_both_providers_take_it_in_every_form(
    tmp_path: Path, text: str, sharp: str, many: int, form: Form
) -> None:
    client = httpx.AsyncClient()
    view = a_view(run_name=sharp, user=text, nodes=(sharp,) * many, nodes_unseen=(text,) * many)
    owed = an_owed(
        run_id=text,
        subject=f"run:{text}",
        reason=sharp * 5,
        suspects=tuple(Suspect(rank, text, rank, sharp) for rank in range(many)),
        view=view,
        state=RunState.SLOW,
        severity=Severity.WARNING,
    )
    message = msgspec.json.decode(
        slack(tmp_path, "https://hooks.slack.com/services/x", client).render(owed, form, now=T0)
    )
    assert slack_refusal(message) is None
    body = pagerduty(tmp_path, "https://pd", client).render(owed, form, now=T0)
    event = {"routing_key": CANARY, **msgspec.json.decode(body)}
    assert PagerDuty().refusal(event, len(body)) is None
    if form is Form.MINIMAL:
        assert message["text"].isascii() or message["text"].endswith("…")
        assert event["payload"]["summary"].isascii() or event["payload"]["summary"].endswith("…")
