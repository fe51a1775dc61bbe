"""The server over real sockets on loopback."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from watchtower import wire
from watchtower.agent.requests import Health
from watchtower.agent.server import AgentServer, TlsError, tls_context
from watchtower.clock import SystemClock


class FakeMemory:
    """Answers with what it was given, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.released: list[float] = []
        self.healthy = Health(True, None, ("the kernel's log cannot be read: permission denied",))

    def snapshot(self, after: str | None) -> wire.Snapshot:
        self.asked.append(after)
        return wire.Snapshot(wire=1, node="gpu-a", taken_at=1.0, cursor="c-1")

    def health(self) -> Health:
        return self.healthy

    def metrics(self) -> bytes:
        return b"watchtower_agent_ranks 3.0\n"

    def release(self, minutes: float) -> None:
        self.released.append(minutes)


@contextlib.contextmanager
def serving(memory: FakeMemory, **options: object) -> Iterator[AgentServer]:
    with AgentServer(("127.0.0.1", 0), memory, SystemClock(), **options) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def memory() -> FakeMemory:
    return FakeMemory()


@pytest.fixture
def server(memory: FakeMemory) -> Iterator[AgentServer]:
    with serving(memory) as server:
        yield server


@pytest.fixture
def guarded(memory: FakeMemory) -> Iterator[AgentServer]:
    with serving(memory, token="s3cret") as server:
        yield server


def ask(
    server: AgentServer, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        body = response.read()
        is_json = response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(body) if is_json and body else {"text": body.decode()}
    finally:
        connection.close()


def send_raw(server: AgentServer, data: bytes) -> bytes:
    """What comes back until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionError):
            while more := sock.recv(65_536):
                received += more
        return received


def test_a_snapshot_is_what_memory_says_after_the_cursor(server: AgentServer, memory: FakeMemory) -> None:
    status, body = ask(server, "GET", "/v1/snapshot?after=abc-5&later_word=1")
    assert (status, body["node"], body["cursor"]) == (200, "gpu-a", "c-1")
    ask(server, "GET", "/v1/snapshot")
    assert memory.asked == ["abc-5", None]


def test_one_connection_carries_many_polls(server: AgentServer, memory: FakeMemory) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.connect()
    sock = connection.sock
    for _ in range(5):
        connection.request("GET", "/v1/snapshot")
        assert connection.getresponse().read()
        assert connection.sock is sock
    connection.close()
    assert len(memory.asked) == 5


def test_metrics_are_prometheus_text(server: AgentServer) -> None:
    assert ask(server, "GET", "/metrics") == (200, {"text": "watchtower_agent_ranks 3.0\n"})


def test_health_is_200_only_while_the_data_is_fresh(server: AgentServer, memory: FakeMemory) -> None:
    status, body = ask(server, "GET", "/healthz")
    assert (status, body["status"]) == (200, "ok")
    assert body["blind"] == ["the kernel's log cannot be read: permission denied"]
    memory.healthy = Health(False, "GPUs last read 40 s ago")
    status, body = ask(server, "GET", "/healthz")
    assert (status, body["status"], body["reason"]) == (503, "stale", "GPUs last read 40 s ago")


@pytest.mark.parametrize(
    "given", [None, "Bearer wrong", "Bearer ", "Basic s3cret", "s3cret", "Bearer s3cret\xff"]
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/snapshot"), ("GET", "/metrics"), ("POST", "/release?minutes=5")]
)
def test_without_the_token_nothing_is_told_or_done(
    guarded: AgentServer, memory: FakeMemory, given: str | None, method: str, path: str
) -> None:
    status, body = ask(guarded, method, path, {} if given is None else {"Authorization": given})
    assert status == 401
    assert "s3cret" not in str(body)
    assert (memory.asked, memory.released) == ([], [])


def test_with_the_token_everything_is(guarded: AgentServer, memory: FakeMemory) -> None:
    bearer = {"Authorization": "bearer s3cret"}
    assert ask(guarded, "GET", "/v1/snapshot", bearer)[0] == 200
    assert ask(guarded, "POST", "/release?minutes=5", bearer) == (200, {"released_min": 5.0})
    assert memory.released == [5]


def test_a_probe_without_the_token_learns_only_whether_all_is_well(guarded: AgentServer) -> None:
    assert ask(guarded, "GET", "/healthz") == (200, {"status": "ok", "reason": None})


@pytest.mark.parametrize(
    "query", ["", "?minutes=", "?minutes=x", "?minutes=-1", "?minutes=nan", "?minutes=1441"]
)
def test_a_release_wants_a_number_of_minutes(guarded: AgentServer, memory: FakeMemory, query: str) -> None:
    status, body = ask(guarded, "POST", f"/release{query}", {"Authorization": "Bearer s3cret"})
    assert status == 400
    assert "minutes" in str(body["error"])
    assert memory.released == []


def test_a_web_page_cannot_release_the_gpus(guarded: AgentServer, memory: FakeMemory) -> None:
    headers = {"Origin": "http://evil", "Authorization": "Bearer s3cret"}
    assert ask(guarded, "POST", "/release?minutes=5", headers)[0] == 403
    assert memory.released == []


def test_without_a_token_no_job_of_this_machine_can_blind_the_watch(
    server: AgentServer, memory: FakeMemory
) -> None:
    status, body = ask(server, "POST", "/release?minutes=5")
    assert (status, memory.released) == (403, [])
    assert "kill -USR1" in str(body["error"])


def test_a_token_in_the_address_is_no_token_and_is_not_logged(
    guarded: AgentServer, memory: FakeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    assert ask(guarded, "GET", "/v1/snapshot?token=s3cret&access_token=s3cret")[0] == 401
    assert "/v1/snapshot" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/snapshot/", 404),
        ("GET", "/../etc/passwd", 404),
        ("POST", "/v1/snapshot", 405),
        ("GET", "/release", 405),
        ("DELETE", "/healthz", 405),
        ("BREW", "/healthz", 501),
        ("GET", "/v1/snapshot?" + "&".join("a" * 100), 400),
    ],
)
def test_what_is_not_there_is_said_in_one_json_sentence(
    server: AgentServer, method: str, path: str, status: int
) -> None:
    got, body = ask(server, method, path)
    assert got == status
    assert list(body) == ["error"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b" 431 "),
        (b"GET /healthz HTTP/1.1\r\n" + b"X-A: " + b"b" * 20_000 + b"\r\n\r\n", b" 431 "),
        (b"GET /healthz HTTP/1.1\r\n" + b"X-A: b\r\n" * 150 + b"\r\n", b" 431 "),
        (b"GET http://[::1 HTTP/1.1\r\nConnection: close\r\n\r\n", b" 400 "),
        (b"nonsense\r\n\r\n", b" 400 "),
        (b"GET /healthz HTTP/9.9\r\n\r\n", b" 505 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 x y z\r\n\r\n", b" 400 "),
    ],
)
def test_hostile_heads_get_a_sentence_and_the_end_of_the_connection(
    server: AgentServer, data: bytes, status: bytes
) -> None:
    received = send_raw(server, data)
    assert status in received.split(b"\r\n")[0]
    assert b'{"error": ' in received
    assert ask(server, "GET", "/healthz")[0] == 200


def test_what_follows_a_body_is_not_taken_for_a_request(server: AgentServer, memory: FakeMemory) -> None:
    smuggled = b"POST /release?minutes=60 HTTP/1.1\r\n\r\n"
    head = b"GET /healthz HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(smuggled)
    assert send_raw(server, head + smuggled).count(b"HTTP/1.1 ") == 1
    chunked = b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert send_raw(server, chunked + smuggled).count(b"HTTP/1.1 ") == 1
    two = b"GET /healthz HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(smuggled)
    assert send_raw(server, two + smuggled).count(b"HTTP/1.1 ") == 1
    assert memory.released == []


def test_a_head_that_never_ends_is_cut_off(memory: FakeMemory) -> None:
    with serving(memory, idle_s=0.3) as server:
        assert send_raw(server, b"GET /healthz HT") == b""


def test_a_head_that_comes_drop_by_drop_is_cut_off_too(memory: FakeMemory) -> None:
    clock = SystemClock()
    with serving(memory, idle_s=0.4) as server:
        with socket.create_connection(("127.0.0.1", server.server_port)) as sock:
            sock.settimeout(
                0.02
            )  # the time between two drops: each comes well before the connection counts as idle
            began = clock.monotonic()
            ended = False
            while not ended and clock.monotonic() - began < 10:
                try:
                    sock.sendall(b"x")
                    ended = sock.recv(1) == b""
                except TimeoutError:
                    continue
                except ConnectionError:
                    ended = True
        assert ended
        assert memory.asked == []


def test_held_connections_do_not_keep_the_watcher_out(memory: FakeMemory) -> None:
    with serving(memory, max_connections=4) as server, contextlib.ExitStack() as held:
        address = ("127.0.0.1", server.server_port)
        idle = [held.enter_context(socket.create_connection(address, timeout=10)) for _ in range(12)]
        for _ in range(3):
            assert ask(server, "GET", "/healthz")[0] == 200
        assert len(server._connections) <= 8
        assert idle


def test_the_probe_says_whether_the_server_answers(server: AgentServer, guarded: AgentServer) -> None:
    assert server.answers()
    assert guarded.answers()


def test_a_server_that_does_not_turn_does_not_answer(memory: FakeMemory) -> None:
    with AgentServer(("127.0.0.1", 0), memory, SystemClock()) as server:
        server._turned_at -= 60
        assert not server.answers()


# -- TLS ----------------------------------------------------------------------------------------------------------------


class Site:
    """A private CA with a certificate for the agent and one for the watcher, as files."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.other_ca = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.cert, self.key = folder / "agent.pem", folder / "agent.key"
        issued = self.ca.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self.cert)
        issued.private_key_pem.write_to_path(self.key)

    def client(self, ca: trustme.CA | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if ca is not None:
            ca.issue_cert("watcher").configure_cert(context)
        return context


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def ask_tls(server: AgentServer, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("127.0.0.1", server.server_port, timeout=10, context=context)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_over_tls_it_answers_who_trusts_it(memory: FakeMemory, site: Site) -> None:
    with serving(memory, tls=tls_context(site.cert, site.key, None)) as server:
        assert ask_tls(server, site.client()) == 200
        assert server.answers()


def test_a_client_ca_keeps_out_who_has_no_certificate_of_it(memory: FakeMemory, site: Site) -> None:
    with serving(memory, tls=tls_context(site.cert, site.key, site.ca_file)) as server:
        assert ask_tls(server, site.client(site.ca)) == 200
        for stranger in (site.client(), site.client(site.other_ca)):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                ask_tls(server, stranger)
        assert ask_tls(server, site.client(site.ca)) == 200


def test_a_handshake_that_never_comes_holds_up_nobody(memory: FakeMemory, site: Site) -> None:
    with serving(memory, tls=tls_context(site.cert, site.key, None)) as server:
        with socket.create_connection(("127.0.0.1", server.server_port)):
            assert ask_tls(server, site.client()) == 200
        assert b"200" not in send_raw(server, b"GET /healthz HTTP/1.1\r\n\r\n")


def test_each_mistake_with_certificates_names_the_file(site: Site, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for cert, key, ca, sentence in (
        (tmp_path / "none.pem", site.key, None, "none.pem"),
        (site.cert, junk, None, "junk.pem"),
        (site.cert, site.ca_file, None, "not a certificate and its key"),
        (site.cert, site.key, junk, "junk.pem is not a CA certificate"),
        (site.cert, site.key, tmp_path / "none-ca.pem", "none-ca.pem"),
    ):
        with pytest.raises(TlsError, match=sentence):
            tls_context(cert, key, ca)
