"""What the command line's tests share: the command itself, as a user starts it, without this shell's own settings."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def watchtower() -> Command:
    """Run `watchtower …` and wait for its end."""

    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WATCHTOWER_", "COLUMNS"))
        }
        return subprocess.run(
            [sys.executable, "-m", "watchtower", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            cwd=ROOT,
            env=kept | {"PYTHONIOENCODING": "utf-8"} | environment,
        )

    return run
