"""One real `watchtower serve` for a simulation: its settings, its process, what it answers. Looks into no file or table of the daemon."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from watchtower.model import RunView
from watchtower.simulate.cluster import Node, answer, plain_environment
from watchtower.simulate.processes import Processes, free_port

_ROUTING_KEY = "0123456789abcdef0123456789abcdef"
_COMMAND_LIMIT_S = 20.0

# Quicker than the defaults, so that the story fits into three minutes; a site should leave them alone.
_SETTINGS = """\
instance = "demo"

[web]
listen = "127.0.0.1:{port}"

[store]
directory = "{folder}/store"

[poll]
interval_s = 2.0
timeout_s = 1.5
targets = [{targets}]

[judge]
deadlock_hold_s = {hold_s}

[[slack]]
name = "slack"
url_file = "{folder}/slack-url"

[[pagerduty]]
name = "pagerduty"
routing_key_file = "{folder}/pagerduty-routing-key"
base_url = "{pagerduty_url}"
"""
DEMO_HOLD_S = 20.0
QUICKER = f"asks every 2 s instead of 5 s, and holds a deadlock for {DEMO_HOLD_S:.0f} s instead of 55 s before it says so"


class _Runs(msgspec.Struct):
    runs: tuple[RunView, ...]


class Watcher:
    """The monitoring box: `start` and `kill` it as often as you like, it keeps its store."""

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[Node],
        *,
        slack_url: str,
        pagerduty_url: str,
        processes: Processes,
        hold_s: float = DEMO_HOLD_S,
    ) -> None:
        self.port = free_port()
        self.config = folder / "watchtower.toml"
        self.log = folder / "watchtower.log"
        self._processes = processes
        self._process: subprocess.Popen[bytes] | None = None
        targets = ", ".join(f'"{node.name}=127.0.0.1:{node.port}"' for node in nodes)
        (folder / "slack-url").write_text(f"{slack_url}\n")
        (folder / "pagerduty-routing-key").write_text(f"{_ROUTING_KEY}\n")
        self._settings = _SETTINGS.format(
            port=self.port, folder=folder, targets=targets, pagerduty_url=pagerduty_url, hold_s=hold_s
        )
        self.write_settings()

    @property
    def url(self) -> str:
        """Where the daemon answers."""
        return f"http://127.0.0.1:{self.port}"

    def write_settings(self) -> None:
        """Write the settings file as it was meant; a running daemon takes it with SIGHUP."""
        self.config.write_text(self._settings)

    def start(self) -> None:
        """Start the daemon on the settings and the store that it has."""
        command = [sys.executable, "-m", "watchtower", "serve", "--config", str(self.config)]
        self._process = self._processes.start(command, env=plain_environment(), output=self.log)

    def kill(self) -> None:
        """End the daemon with SIGKILL, as a power cut or the OOM killer would."""
        self.signal(signal.SIGKILL)
        self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send the daemon one signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, within_s: float = _COMMAND_LIMIT_S) -> int | None:
        """Wait until the daemon has left.

        Returns:
            Its exit status, negative for a signal, or None when it was never started.

        Raises:
            subprocess.TimeoutExpired: it has not left in time.
        """
        return None if self._process is None else self._process.wait(within_s)

    def left(self) -> bool:
        """Whether the daemon has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def is_well(self) -> bool:
        """Whether it answers, and says that it looks and can tell."""
        return answer(self.port, "/healthz") is not None

    def runs(self) -> tuple[RunView, ...] | None:
        """The runs as the daemon sees them now, or None while it does not answer."""
        body = answer(self.port, "/api/v1/runs")
        try:
            return msgspec.json.decode(body, type=_Runs).runs if body is not None else None
        except msgspec.DecodeError:
            return None

    def status(self, *arguments: str) -> tuple[int, str]:
        """Run `watchtower status`: its exit status and what it printed."""
        command = [sys.executable, "-m", "watchtower", "status", "--url", self.url, *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=plain_environment(),
            timeout=_COMMAND_LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr
