"""The command itself: its help, its version, and what it may import on the way to `status`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.fakes.daemon import running_daemon
from watchtower import __version__
from watchtower.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
# Each costs more than the whole command may.
TOO_DEAR = {
    "httpx",
    "rich",
    "pydantic",
    "msgspec",
    "starlette",
    "uvicorn",
    "apscheduler",
    "prometheus_client",
    "asyncio",
}


def test_the_version_is_printed(watchtower: Command) -> None:
    assert watchtower("--version").stdout == f"watchtower {__version__}\n"


def test_help_names_every_command(watchtower: Command) -> None:
    for way in (("--help",), ("-h",), ()):
        said = watchtower(*way)
        assert all(re.search(rf"^  {name} ", said.stdout + said.stderr, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("name", ["status", "serve", "check-config", "init"])
def test_each_command_explains_itself_and_its_exit_status(watchtower: Command, name: str) -> None:
    said = watchtower(name, "--help")
    assert said.returncode == 0
    assert "Exit status:" in said.stdout


def test_an_unknown_command_is_one_sentence(watchtower: Command) -> None:
    said = watchtower("stauts")
    assert said.returncode == 2
    assert "No such command 'stauts'" in said.stderr
    assert "Traceback" not in said.stderr


def test_status_imports_nothing_dear() -> None:
    with running_daemon() as url:
        said = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "watchtower", "status", "--url", url],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            cwd=ROOT,
        )
    assert said.returncode == 2, said.stderr[-500:]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in said.stderr.splitlines()}
    assert "typer" in imported
    assert imported & TOO_DEAR == set()
