"""What `watchtower init` makes, what it leaves alone, and that both ends of a connection accept it."""

import ssl
import tomllib
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


def test_the_next_steps_name_every_node_also_those_of_an_earlier_call(
    watchtower: Command, tmp_path: Path
) -> None:
    watchtower("init", "--directory", str(tmp_path), "--node", "gpu-a", "--node", "gpu-b")
    said = watchtower("init", "--directory", str(tmp_path), "--node", "fd00::7").stdout
    config = said.partition("[poll]")[2].partition("and who")[0]
    settings = tomllib.loads("[poll]" + config)["poll"]
    assert settings.pop("targets") == ["[fd00::7]:9477", "gpu-a:9477", "gpu-b:9477"]
    assert {tmp_path / name for name in settings.values()} <= set(tmp_path.iterdir())
    for stem in ("node-gpu-a", "node-gpu-b", "node-fd00__7"):
        assert f"--tls-cert /etc/watchtower/{stem}.crt --tls-key /etc/watchtower/{stem}.key" in said
        assert (tmp_path / f"{stem}.crt").exists()


def test_what_is_missing_is_told_together(watchtower: Command, tmp_path: Path) -> None:
    said = watchtower("init")
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    assert "--directory" in said.stderr
    assert "--node" in said.stderr
    said = watchtower("init", "--directory", str(tmp_path))
    assert (said.returncode, "--directory" in said.stderr, "--node" in said.stderr) == (2, False, True)


def test_a_directory_that_is_a_file_is_said(watchtower: Command, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for name, words in (
        ("taken", "is a file; give the name of a directory"),
        ("taken/x", "cannot be written to"),
    ):
        said = watchtower("init", "--directory", str(tmp_path / name), "--node", "gpu-a")
        assert (said.returncode, said.stderr.count("\n")) == (2, 1)
        assert f"--directory {tmp_path}/{name} {words}" in said.stderr


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
