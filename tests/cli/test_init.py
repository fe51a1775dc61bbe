"""What `watchtower init` makes, what it leaves alone, and that both ends of a connection accept it."""

import ssl
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.fakes.agent import running_agent
from watchtower.poller.ask import Asker
from watchtower.poller.settings import PollSettings
from watchtower.poller.targets import parse_target
from watchtower.poller.tls import client_context
from watchtower.secrets import read_secret
from watchtower.wire import Snapshot


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_files_are_for_their_owner_and_the_next_steps_are_said(watchtower: Command, tmp_path: Path) -> None:
    site = tmp_path / "site"
    said = watchtower("init", "--directory", str(site), "--node", "gpu-a", "--node", "10.0.0.5")
    assert said.returncode == 0, said.stderr
    names = {path.name for path in site.iterdir()}
    assert names == {
        "token", "ca.crt", "ca.key", "watcher.crt", "watcher.key",
        "node-gpu-a.crt", "node-gpu-a.key", "node-10.0.0.5.crt", "node-10.0.0.5.key",
    }  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in site.iterdir()} == {0o600}
    assert site.stat().st_mode & 0o777 == 0o700
    assert len(read_secret(site / "token")) >= 40
    assert read_secret(site / "token") not in said.stdout
    assert "--client-ca" in said.stdout


def test_nothing_is_overwritten_and_nodes_can_be_added(watchtower: Command, tmp_path: Path) -> None:
    watchtower("init", "--directory", str(tmp_path), "--node", "gpu-a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    said = watchtower("init", "--directory", str(tmp_path), "--node", "gpu-a", "--node", "gpu-b")
    assert said.returncode == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"node-gpu-b.crt", "node-gpu-b.key"}


async def test_agent_and_watcher_trust_what_was_made(watchtower: Command, tmp_path: Path) -> None:
    watchtower("init", "--directory", str(tmp_path), "--node", "127.0.0.1")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "node-127.0.0.1.crt", tmp_path / "node-127.0.0.1.key")
    server.load_verify_locations(tmp_path / "ca.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    settings = PollSettings(
        ca_file=tmp_path / "ca.crt", cert_file=tmp_path / "watcher.crt", key_file=tmp_path / "watcher.key"
    )
    token = read_secret(tmp_path / "token")
    with running_agent(token=token, context=server) as fake:
        asker = Asker(context=client_context(settings), timeout_s=5, token=token)
        answer = await asker.ask(parse_target(fake.target, tls=True), "")
        await asker.aclose()
    assert isinstance(answer, Snapshot)


@pytest.mark.parametrize(
    ("prepare", "arguments", "sentence"),
    [
        ("", ("--node", "a/b"), "--node 'a/b' is not a host name or an address"),
        ("ca.crt", ("--node", "gpu-a"), "is there without its other half"),
        ("node-gpu-a.crt", ("--node", "gpu-a"), "only one of node-gpu-a.crt and node-gpu-a.key is there"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    watchtower: Command, tmp_path: Path, prepare: str, arguments: tuple[str, ...], sentence: str
) -> None:
    if prepare:
        (tmp_path / prepare).write_text("x")
    said = watchtower("init", "--directory", str(tmp_path), *arguments)
    assert said.returncode == 2
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr
