"""Whole agents as processes, on the real binding: from start to SIGTERM, through what goes wrong with a driver."""

import datetime as dt
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.agent.conftest import SimulatedNode
from watchtower.clock import SystemClock

START = "import sys; from watchtower.cli.agent import agent; import typer; typer.run(agent)"
CLOCK = SystemClock()


class Agent:
    """One agent on a free port of loopback."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = folder / "agent.toml"
        settings.write_text("interval_s = 0.1\nsweep_deadline_s = 0.5\nend_after_s = 3\nrelease_min = 1\n")
        self.log = folder / "log"
        command = [sys.executable, "-c", START, "--config", str(settings), "--node", "gpu-a"]
        command += ["--listen", f"127.0.0.1:{self.port}", "--kmsg-path", "/dev/null", *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)

    def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read()
            return response.status, json.loads(body) if body[:1] == b"{" else body.decode()
        finally:
            connection.close()

    def until(self, wanted: Callable[[Any], bool], what: str, limit_s: float = 20) -> Any:
        """The first snapshot that is as wanted."""
        until = CLOCK.monotonic() + limit_s
        last: object = None
        while CLOCK.monotonic() < until and self.process.poll() is None:
            try:
                last = self.get("/v1/snapshot")[1]
            except OSError:
                last = None
            if last is not None and wanted(last):
                return last
            CLOCK.pause(0.05)
        pytest.fail(
            f"not within {limit_s} s: {what}; last: {str(last)[:2000]}; log: {self.log.read_text()[-2000:]}"
        )

    def until_nvml(self, state: str) -> Any:
        return self.until(lambda snapshot: snapshot["nvml"]["state"] == state, f"NVML {state}")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def start(*arguments: str) -> Agent:
        agents.append(Agent(*arguments, folder=tmp_path))
        return agents[-1]

    yield start
    for agent in agents:
        agent.end()


def test_it_reads_eight_boards_answers_everywhere_and_ends_cleanly(
    node: SimulatedNode, start: Callable[..., Agent]
) -> None:
    agent = start()
    snapshot = agent.until(lambda s: len(s["gpus"]) == 8 and s["gpus"][7]["samples"], "eight boards")
    assert snapshot["node"] == "gpu-a"
    assert snapshot["gpus"][3]["samples"][-1][1:] == [903.0, 100.0, 0.0, 1965.0, 231_000.0]
    newer = agent.until(lambda s: True, "another")
    assert len(newer["gpus"][0]["samples"]) >= len(snapshot["gpus"][0]["samples"])
    status, metrics = agent.get("/metrics")
    assert status == 200
    assert 'watchtower_agent_gpus{state="ok"} 8.0' in metrics
    assert agent.get("/healthz")[0] == 200
    began = CLOCK.monotonic()
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(10) == 0
    assert CLOCK.monotonic() - began < 10
    assert "Traceback" not in agent.log.read_text()


def test_a_wedged_driver_is_told_while_the_agent_answers_and_is_over_when_it_is_over(
    node: SimulatedNode, start: Callable[..., Agent]
) -> None:
    agent = start()
    agent.until_nvml("ok")
    node.break_(3, {"delay.nvmlDeviceGetFieldValues": 1500})
    snapshot = agent.until_nvml("unresponsive")
    assert "GPU 3: nvmlDeviceGetFieldValues has not returned" in snapshot["nvml"]["detail"]
    assert {gpu["state"] for gpu in snapshot["gpus"]} == {"unreadable"}
    assert agent.get("/healthz")[0] == 503
    node.break_(3, {})
    snapshot = agent.until_nvml("ok")
    assert {gpu["state"] for gpu in snapshot["gpus"]} == {"ok"}
    assert "children_starts_total 2" not in agent.get("/metrics")[1]


@pytest.mark.slow
def test_a_wedge_that_lasts_gets_a_new_process(node: SimulatedNode, start: Callable[..., Agent]) -> None:
    agent = start()
    agent.until_nvml("ok")
    node.break_(3, {"delay.nvmlDeviceGetFieldValues": 600_000})
    agent.until_nvml("unresponsive")
    node.break_(3, {})
    agent.until_nvml("ok")
    assert "watchtower_agent_nvml_child_starts_total 2.0" in agent.get("/metrics")[1]


def test_a_driver_upgrade_is_told_and_survived(node: SimulatedNode, start: Callable[..., Agent]) -> None:
    agent = start()
    agent.until_nvml("ok")
    node.set(init=18, extra={"ret.nvmlEventSetWait_v2": 18})
    snapshot = agent.until_nvml("absent")
    assert snapshot["nvml"]["detail"].startswith("version_mismatch: ")
    node.set(init=0, extra={}, driver="590.48")
    assert agent.until_nvml("ok")["nvml"]["driver_version"] == "590.48"


def test_without_a_library_it_starts_says_so_and_stays(
    start: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    agent = start()
    snapshot = agent.until_nvml("absent")
    assert "library_not_found" in snapshot["nvml"]["detail"]
    assert snapshot["gpus"] == []
    status, body = agent.get("/healthz")
    assert (status, "NVML is absent" in body["reason"]) == (503, True)


def test_an_expired_certificate_is_said_at_the_start(start: Callable[..., Agent], tmp_path: Path) -> None:
    end = dt.datetime.fromtimestamp(CLOCK.now(), dt.UTC) - dt.timedelta(days=1)
    made = trustme.CA().issue_cert("gpu-a", not_after=end)
    made.cert_chain_pems[0].write_to_path(str(tmp_path / "node.crt"))
    made.private_key_pem.write_to_path(str(tmp_path / "node.key"))
    agent = start("--tls-cert", str(tmp_path / "node.crt"), "--tls-key", str(tmp_path / "node.key"))
    until = CLOCK.monotonic() + 20
    while "agent_started" not in agent.log.read_text() and CLOCK.monotonic() < until:
        CLOCK.pause(0.05)
    assert agent.log.read_text().count(f"tls_cert = {tmp_path}/node.crt has expired") == 1


def test_released_it_holds_no_driver_until_it_is_told_to_go_on(
    node: SimulatedNode, start: Callable[..., Agent]
) -> None:
    agent = start()
    agent.until_nvml("ok")
    agent.process.send_signal(signal.SIGUSR1)
    agent.until_nvml("released")
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    assert children == []
    agent.process.send_signal(signal.SIGUSR2)
    agent.until_nvml("ok")


def test_systemd_is_told_of_the_start_the_life_and_the_end(
    node: SimulatedNode, start: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "600000")
        agent = start()
        assert systemd.recv(64) == b"READY=1"
        assert systemd.recv(64) == b"WATCHDOG=1"
        # Also while a driver is wedged: to be restarted would not cure it, and nobody would say what is wrong.
        node.break_(3, {"delay.nvmlDeviceGetFieldValues": 1500})
        agent.until_nvml("unresponsive")
        assert systemd.recv(64) == b"WATCHDOG=1"
        agent.process.send_signal(signal.SIGTERM)
        said = b""
        while said != b"STOPPING=1":
            said = systemd.recv(64)
        assert agent.process.wait(10) == 0


def test_a_port_in_use_is_one_sentence_and_status_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", START, "--listen", address],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"watchtower agent: {address} is in use")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--listen", "0.0.0.0:9477"],
        ["--token-file", "/none"],
        ["--config", "/none"],
        ["--tls-cert", "/none", "--tls-key", "/none"],
        ["--sampler-command", "'"],
        ["--log-level", "loud"],
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence_and_status_2(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("watchtower agent: ")
    assert done.stderr.count("\n") == 1
