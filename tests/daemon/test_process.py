"""The real `watchtower serve` as a process, with fake agents: it starts, reloads, refuses, survives and leaves as it should."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.agent import FakeAgent, running_agent, snapshot_json
from watchtower.clock import SystemClock

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
CONFIG = """
[web]
listen = "127.0.0.1:{port}"
[store]
directory = "store"
[poll]
interval_s = 1.0
timeout_s = 0.5
targets = ["gpu-a={target}"]
target_files = ["more.json"]
[[slack]]
url_file = "hook"
"""


def wait_for(condition: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
    deadline = CLOCK.monotonic() + within_s
    while not condition():
        assert CLOCK.monotonic() < deadline, f"{what}: not within {within_s} s"
        CLOCK.pause(0.05)


class Site:
    """A folder with a configuration, one fake agent, and the daemons started on it."""

    def __init__(self, folder: Path, agent: FakeAgent) -> None:
        self.folder = folder
        self.agent = agent
        self.log = folder / "log"
        self.started: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.config = folder / "watchtower.toml"
        self.write()
        (folder / "hook").write_text("http://127.0.0.1:1/hook\n")
        (folder / "more.json").write_text("[]")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(folder / "notify"))
        self.notify.settimeout(20)

    def write(self, more: str = "") -> None:
        self.config.write_text(CONFIG.format(port=self.port, target=self.agent.target) + more)

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "watchtower", "serve", "--config", str(self.config)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env=os.environ | {"NOTIFY_SOCKET": str(self.folder / "notify")} | environment,
            )
        self.started.append(process)
        return process

    def told(self, wanted: str) -> None:
        """Wait until systemd would have been told this."""
        while not self.notify.recv(4096).decode().startswith(wanted):
            pass

    def facts(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/status", timeout=5) as reply:
            return dict(json.load(reply))

    def said(self, word: str) -> bool:
        return word in self.log.read_text()

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.notify.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_agent() as agent:
        agent.answer = snapshot_json(
            ranks=[{"run_id": "slurm-1", "pid": 7, "rank": 0, "world_size": 1, "gpu_uuids": ["GPU-1"]}]
        )
        made = Site(tmp_path, agent)
        yield made
        made.close()


def test_a_daemon_starts_looks_reloads_and_leaves(site: Site) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard // 2), hard))  # as a login shell has it
    daemon = site.start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    site.told("READY=1")
    assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    site.told("WATCHDOG=1")
    wait_for(lambda: [run["run_id"] for run in site.facts()["runs"]] == ["slurm-1"], "the run")
    assert site.facts()["watcher"]["agents_fresh"] == 1

    site.write("\n[judge]\ndeadlock_hold = 3\n")
    daemon.send_signal(signal.SIGHUP)
    site.told("RELOADING=1")
    site.told("READY=1")
    assert site.said("did you mean `deadlock_hold_s`?")
    assert site.said("the settings from before stay in use")
    wait_for(lambda: site.facts()["watcher"]["agents_fresh"] == 1, "still looking")

    site.write()
    site.config.write_text('instance = "other"\n' + site.config.read_text().replace('"store"', '"elsewhere"'))
    daemon.send_signal(signal.SIGHUP)
    site.told("READY=1")
    assert site.facts()["watcher"]["instance"] == "other"
    assert site.said("store.directory stays")
    site.told("WATCHDOG=1")

    (site.folder / "more.json").write_text('[{"targets": ["127.0.0.1:1"], "labels": {"node": "gpu-b"}}]')
    wait_for(lambda: site.facts()["watcher"]["agents"] == 2, "the target file")

    began = CLOCK.monotonic()
    daemon.send_signal(signal.SIGTERM)
    site.told("STOPPING=1")
    assert daemon.wait(10) == 0
    assert CLOCK.monotonic() - began < 10
    assert not site.said("Traceback")


def test_a_killed_daemon_goes_on_where_it_was(site: Site) -> None:
    daemon = site.start()
    wait_for(lambda: site.log.exists() and site.said("run_state"), "the run")
    site.told("WATCHDOG=1")
    first = site.facts()["runs"][0]["first_seen_at"]
    site.agent.answer["cursor"] = "8"
    daemon.kill()
    daemon.wait()
    asked = len(site.agent.asked)
    site.start()
    site.told("READY=1")
    site.told("WATCHDOG=1")
    assert site.facts()["runs"][0]["first_seen_at"] == first
    assert site.agent.asked[asked] in {"", "7"}
    assert not site.said("Traceback")


def test_what_a_person_must_mend_is_one_sentence_and_status_two(site: Site) -> None:
    site.start()
    site.told("READY=1")
    before = site.log.read_text()
    assert site.start().wait(20) == 2
    said = site.log.read_text().removeprefix(before)
    assert f"cannot listen on 127.0.0.1:{site.port}" in said
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        other = free.getsockname()[1]
    site.config.write_text(site.config.read_text().replace(str(site.port), str(other)))
    assert site.start().wait(20) == 2
    assert site.said("is in use by another watchtower")
    site.config.write_text("[poll]\n")
    assert site.start().wait(20) == 2
    assert site.said("no agents: set poll.targets")
    site.write()
    assert site.start(WATCHDOG_USEC="2000000").wait(20) == 2
    assert site.said("WatchdogSec")
    assert not site.said("Traceback")
