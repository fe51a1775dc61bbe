"""What the poller makes of everything an agent, or what stands in its place, may answer over a real connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import pytest
import trustme

from tests.fakes.agent import FakeAgent, closed_port, running_agent, snapshot_json
from watchtower.clock import SystemClock
from watchtower.model import PollFailure
from watchtower.poller import ask as ask_module
from watchtower.poller.ask import Asker
from watchtower.poller.failure import Failed
from watchtower.poller.schedule import PollSchedule
from watchtower.poller.settings import PollSettings
from watchtower.poller.targets import Agent, parse_target
from watchtower.poller.tls import client_context
from watchtower.poller.translate import observe
from watchtower.wire import Gpu, Progress, Rank, Snapshot, encode

TIMEOUT_S = 0.4


@asynccontextmanager
async def asking(
    *, token: str | None = None, context: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[Asker]:
    asker = Asker(context=context or client_context(PollSettings()), timeout_s=timeout_s, token=token)
    try:
        yield asker
    finally:
        await asker.aclose()


def agent_at(fake: FakeAgent) -> Agent:
    return Agent("gpu-a", fake.url)


async def reason(asker: Asker, agent: Agent) -> PollFailure | None:
    answer = await asker.ask(agent, "")
    return answer.reason if isinstance(answer, Failed) else None


async def detail(asker: Asker, agent: Agent) -> str | None:
    answer = await asker.ask(agent, "")
    return answer.detail if isinstance(answer, Failed) else None


async def test_a_snapshot_arrives_as_it_was_encoded() -> None:
    said = Snapshot(
        wire=1,
        node="gpu-a",
        taken_at=1764540000.0,
        cursor="81243",
        gpus=(
            Gpu(
                uuid="GPU-1",
                index=0,
                samples=[(1.0, 917.2, 99, 41, 1785, 231004), (0.0, None, 100, 42, None, 1)],
            ),
        ),
        ranks=(Rank(run_id="slurm-1", pid=7, rank=3),),
        progress=(Progress(run_id="slurm-1", at=1764539995.0, step=3850),),
    )
    with running_agent() as fake:
        fake.body = encode(said)
        async with asking() as asker:
            assert await asker.ask(agent_at(fake), "") == said


async def test_the_cursor_is_handed_back_and_the_connection_kept() -> None:
    with running_agent() as fake:
        async with asking() as asker:
            for cursor in ("", "7", "a b&c"):
                assert isinstance(await asker.ask(agent_at(fake), cursor), Snapshot)
        assert fake.asked == ["", "7", "a b&c"]
        assert fake.connections == 1


async def test_the_token_is_shown_and_a_wrong_one_is_unauthorized() -> None:
    with running_agent(token="right") as fake:
        async with asking(token="right") as asker:
            assert isinstance(await asker.ask(agent_at(fake), ""), Snapshot)
        for wrong in ("wrong", None):
            async with asking(token=wrong) as asker:
                assert await reason(asker, agent_at(fake)) is PollFailure.UNAUTHORIZED


async def test_an_older_agent_that_knows_less_is_understood() -> None:
    with running_agent() as fake:
        fake.answer = {"wire": 0, "node": "gpu-a", "taken_at": 1.0}
        async with asking() as asker:
            answer = await asker.ask(agent_at(fake), "")
    assert isinstance(answer, Snapshot)
    assert answer.gpus == ()


async def test_a_newer_agent_with_unknown_fields_and_words_is_understood() -> None:
    with running_agent() as fake:
        fake.answer = snapshot_json(
            wire=9,
            quantum={"spin": [1, {"deep": None}]},
            nvml={"state": "entangled", "mood": 1},
            ranks=[{"run_id": "r", "pid": 1, "rank_source": "oracle", "soul": True}],
            progress=[{"run_id": "r", "at": 1.0, "phase": "dreaming"}],
        )
        async with asking() as asker:
            answer = await asker.ask(agent_at(fake), "")
    assert isinstance(answer, Snapshot)
    reading = observe(answer, at=5.0, node="gpu-a").reading
    assert reading is not None
    assert reading.nvml_state == "unresponsive"
    assert reading.ranks[0].rank_source == "inferred"
    assert reading.progress[0].phase is None


def _not_json(fake: FakeAgent) -> None:
    fake.body = b"<html>It works!</html>"


def _not_utf8(fake: FakeAgent) -> None:
    fake.body = b'{"wire": 1, "node": "\xff", "taken_at": 1}'


def _bottomless(fake: FakeAgent) -> None:
    fake.body = b'{"x": ' + b"[" * 200_000


def _wrong_types(fake: FakeAgent) -> None:
    fake.answer = snapshot_json(gpus="none")


def _not_http(fake: FakeAgent) -> None:
    fake.raw = b"SSH-2.0-OpenSSH_9.2p1\r\n" * 3


def _wrong_status(fake: FakeAgent) -> None:
    fake.status = 500


def _redirect(fake: FakeAgent) -> None:
    fake.status = 302
    fake.headers = {"location": "http://127.0.0.1:1/"}


def _compressed(fake: FakeAgent) -> None:
    fake.headers = {"content-encoding": "gzip"}
    fake.body = b"\x1f\x8b\x08\x00"


def _cut_short(fake: FakeAgent) -> None:
    fake.headers = {"content-length": "5000"}
    fake.close_after = True


@pytest.mark.parametrize(
    "misbehave",
    [
        _not_json,
        _not_utf8,
        _bottomless,
        _wrong_types,
        _not_http,
        _wrong_status,
        _redirect,
        _compressed,
        _cut_short,
    ],
)
async def test_garbage_is_a_bad_reply_and_the_next_poll_is_a_fresh_chance(
    misbehave: Callable[[FakeAgent], None],
) -> None:
    with running_agent() as fake:
        misbehave(fake)
        async with asking(timeout_s=5) as asker:
            assert await reason(asker, agent_at(fake)) is PollFailure.BAD_REPLY
            fake.raw, fake.body, fake.status, fake.headers = None, None, 200, {}
            fake.answer, fake.close_after = snapshot_json(), False
            assert isinstance(await asker.ask(agent_at(fake), ""), Snapshot)
        assert fake.connections >= 2


async def test_a_reply_without_end_is_cut_off_at_the_cap() -> None:
    with running_agent() as fake:
        fake.body = encode(Snapshot(wire=1, node="gpu-a", taken_at=1.0)) + b" " * ask_module.MAX_REPLY_BYTES
        async with asking(timeout_s=20) as asker:
            assert await reason(asker, agent_at(fake)) is PollFailure.BAD_REPLY


@pytest.mark.parametrize("how", ["silent", "drip"])
async def test_an_agent_that_never_finishes_costs_one_deadline_and_is_asked_again(how: str) -> None:
    clock = SystemClock()
    with running_agent() as fake:
        setattr(fake, how, True)
        async with asking() as asker:
            began = clock.monotonic()
            assert await reason(asker, agent_at(fake)) is PollFailure.TIMEOUT
            assert clock.monotonic() - began < TIMEOUT_S + 1.0
            setattr(fake, how, False)
            assert isinstance(await asker.ask(agent_at(fake), ""), Snapshot)


async def test_nothing_listening_is_refused() -> None:
    with closed_port() as port:
        async with asking() as asker:
            assert await reason(asker, Agent("gpu-a", f"http://127.0.0.1:{port}")) is PollFailure.REFUSED
            assert await reason(asker, Agent("gpu-a", f"http://localhost:{port}")) is PollFailure.REFUSED


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    async with asking(timeout_s=10) as asker:
        assert await reason(asker, Agent("gpu-a", "http://gpu-a.invalid:9477")) is PollFailure.UNREACHABLE


async def test_an_agent_that_closed_the_idle_connection_is_asked_anew_within_the_same_poll() -> None:
    with running_agent() as fake:
        fake.close_after = True
        async with asking(timeout_s=5) as asker:
            for _ in range(5):
                assert isinstance(await asker.ask(agent_at(fake), ""), Snapshot)
        assert fake.connections == 5


def _tls_server(authority: trustme.CA, *, clients: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if clients:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _tls_client(authority: trustme.CA | None, *, shows_itself: bool = False) -> ssl.SSLContext:
    context = client_context(PollSettings())
    if authority is not None:
        authority.configure_trust(context)
        if shows_itself:
            authority.issue_cert("watchtower").configure_cert(context)
    return context


async def test_tls_with_client_certificates_works_and_keeps_its_connection() -> None:
    authority = trustme.CA()
    with running_agent(context=_tls_server(authority, clients=True)) as fake:
        async with asking(context=_tls_client(authority, shows_itself=True), timeout_s=5) as asker:
            assert isinstance(await asker.ask(agent_at(fake), ""), Snapshot)
            assert isinstance(await asker.ask(agent_at(fake), "7"), Snapshot)
        assert fake.connections == 1


async def test_a_certificate_from_a_stranger_is_a_tls_failure() -> None:
    with running_agent(context=_tls_server(trustme.CA(), clients=False)) as fake:
        async with asking(context=_tls_client(trustme.CA()), timeout_s=5) as asker:
            assert await reason(asker, agent_at(fake)) is PollFailure.TLS


async def test_a_plain_agent_behind_an_https_target_is_a_tls_failure() -> None:
    with running_agent() as fake:
        async with asking(context=_tls_client(trustme.CA()), timeout_s=5) as asker:
            secure = Agent("gpu-a", fake.url.replace("http:", "https:"))
            assert await reason(asker, secure) is PollFailure.TLS


async def test_a_dead_agent_does_not_delay_a_healthy_one() -> None:
    polls: list[tuple[str, float]] = []
    with ExitStack() as running:
        dead = [running.enter_context(running_agent()) for _ in range(10)]
        well = running.enter_context(running_agent())
        agents = [parse_target(f"well={well.target}", tls=False)]
        for number, fake in enumerate(dead):
            fake.silent = True
            agents.append(parse_target(f"dead-{number}={fake.target}", tls=False))
        async with asking(timeout_s=0.9) as asker:
            schedule = PollSchedule(
                asker=asker,
                clock=SystemClock(),
                interval_s=1.0,
                on_poll=lambda how, s: polls.append((how, s)),
            )
            await schedule.retarget(agents)
            task = asyncio.create_task(schedule.run())
            try:
                async with asyncio.timeout(20):
                    while len(well.asked) < 3 or len(polls) < 30:
                        await SystemClock().sleep(0.02)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    assert max(seconds for outcome, seconds in polls if outcome == "ok") < 0.5
    assert {outcome for outcome, _ in polls} == {"ok", "timeout"}


async def test_what_went_wrong_is_said_in_words_that_name_the_cure() -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    said: dict[str, str | None] = {}
    with running_agent(context=_tls_server(theirs, clients=False)) as fake:
        async with asking(context=_tls_client(ours), timeout_s=5) as asker:
            said["stranger"] = await detail(asker, agent_at(fake))
    misnamed = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.issue_cert("gpu-a").configure_cert(misnamed)
    with running_agent(context=misnamed) as fake:
        async with asking(context=_tls_client(ours), timeout_s=5) as asker:
            said["misnamed"] = await detail(asker, agent_at(fake))
    with running_agent() as fake:
        async with asking(context=_tls_client(ours), timeout_s=5) as asker:
            said["plain"] = await detail(asker, Agent("gpu-a", fake.url.replace("http:", "https:")))
    with running_agent(context=_tls_server(ours, clients=True)) as fake:
        async with asking(context=_tls_client(ours), timeout_s=5) as asker:
            said["nameless"] = await detail(asker, agent_at(fake))
        async with asking(timeout_s=5) as asker:
            said["not https"] = await detail(asker, Agent("gpu-a", fake.url.replace("https:", "http:")))
    assert said == {
        "stranger": "its certificate is not signed by a CA that we trust (poll.ca_file)",
        "misnamed": "its certificate is not for 127.0.0.1",
        "plain": "what answers there does not speak TLS: is the agent's own TLS off?",
        "nameless": "the agent asks for a certificate of ours (poll.cert_file)",
        "not https": "the connection ended before an HTTP answer did: does the agent want https?",
    }


async def test_a_wrong_status_an_unreadable_answer_and_a_refused_token_each_say_so() -> None:
    with running_agent(token="right") as fake:
        async with asking(token="wr0ng-s3cret", timeout_s=5) as asker:
            refused = await detail(asker, agent_at(fake))
        async with asking(timeout_s=5) as asker:
            assert await detail(asker, agent_at(fake)) == "HTTP 401: set poll.token_file"
    assert refused == "HTTP 401: the token in poll.token_file is not the agent's"
    with running_agent() as fake:
        async with asking(timeout_s=5) as asker:
            said = []
            for misbehave in (_wrong_status, _not_json, _wrong_types, _not_http):
                fake.raw, fake.body, fake.status = None, None, 200
                misbehave(fake)
                said.append(await detail(asker, agent_at(fake)))
    assert said == [
        "HTTP 500: is this an agent?",
        "not JSON",
        "not a snapshot: Expected `array`, got `str` - at `$.gpus`",
        "the connection ended before an HTTP answer did: does the agent want https?",
    ]


async def test_nobody_there_no_such_name_and_no_answer_are_told_apart() -> None:
    with closed_port() as port:
        async with asking(timeout_s=5) as asker:
            assert (
                await detail(asker, Agent("gpu-a", f"http://127.0.0.1:{port}"))
                == f"nothing listens at 127.0.0.1:{port}"
            )
            unknown = await detail(asker, Agent("gpu-a", "http://gpu-a.invalid:9477"))
    assert unknown is not None
    assert unknown.startswith("the name gpu-a.invalid cannot be resolved (")
    with running_agent() as fake:
        fake.silent = True
        async with asking() as asker:
            assert await detail(asker, agent_at(fake)) == "no answer within 0.4 s"
