"""What `watchtower check-config` says about good and bad configurations."""

import datetime as dt
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from tests.cli.conftest import ROOT, Command
from watchtower.clock import SystemClock


def test_a_good_configuration_is_summed_up(watchtower: Command, tmp_path: Path) -> None:
    config = tmp_path / "watchtower.toml"
    config.write_text('[poll]\ntargets = ["gpu-a", "gpu-b"]\n')
    said = watchtower("check-config", str(config))
    assert (said.returncode, said.stderr) == (0, "")
    assert "ok; 2 agents, tells nobody" in said.stdout


def test_every_mistake_is_a_line(watchtower: Command, tmp_path: Path) -> None:
    config = tmp_path / "watchtower.toml"
    config.write_text("[poll]\nintervall_s = 3\n[web]\nlisten = 4\n")
    said = watchtower("check-config", str(config))
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.splitlines() == [
        f"{config}: poll.intervall_s: unknown key; did you mean `interval_s`?",
        f"{config}: web.listen: must be text, got a whole number",
    ]


def test_files_that_are_named_are_looked_into(watchtower: Command, tmp_path: Path) -> None:
    config = tmp_path / "watchtower.toml"
    (tmp_path / "nodes.json").write_text("{")
    config.write_text('[poll]\ntarget_files = ["nodes.json"]\n')
    said = watchtower("check-config", str(config))
    assert said.returncode == 2
    assert "nodes.json: not a Prometheus file_sd JSON file" in said.stderr
    config.write_text('[poll]\ntargets = ["gpu-a"]\ntoken_file = "gone"\n')
    said = watchtower("check-config", str(config))
    assert (said.returncode, "poll.token_file: cannot read secret file" in said.stderr) == (2, True)
    assert "Traceback" not in said.stderr


def test_a_missing_file_is_named(watchtower: Command, tmp_path: Path) -> None:
    said = watchtower("check-config", str(tmp_path / "gone.toml"))
    assert (said.returncode, said.stderr.count("\n")) == (2, 1)
    assert "cannot read" in said.stderr


def test_one_look_shows_mistakes_of_settings_files_and_directories(
    watchtower: Command, tmp_path: Path
) -> None:
    config = tmp_path / "watchtower.toml"
    (tmp_path / "hook").write_text("xyz\n")
    (tmp_path / "key").write_text("xyzkey\n")
    (tmp_path / "nodes.json").write_text("{")
    config.write_text(
        """
        [web]
        listen = 4
        [store]
        directory = "hook/store"
        [poll]
        timeout_s = 60
        targets = ["a/b"]
        target_files = ["nodes.json", "more/*.json"]
        [[slack]]
        url_file = "hook"
        [[pagerduty]]
        routing_key_file = "key"
        base_url = "events"
        [deadman]
        url_file = "hook"
        """
    )
    said = watchtower("check-config", str(config))
    assert said.returncode == 2
    lines = [line.removeprefix(f"{config}: ") for line in said.stderr.splitlines()]
    begins = [
        "warning: poll.target_files: ",
        "web.listen: must be text",
        "poll: timeout_s (60)",
        "pagerduty[0]: base_url must be",
        "poll.targets[0]: target 'a/b' has a path",
        "slack 'slack': the URL of a Slack incoming webhook is wanted in url_file ",
        "pagerduty 'pagerduty': routing_key_file ",
        "deadman.url_file: the ping URL ",
        "poll.target_files: ",
        "store.directory: ",
    ]
    for line, begin in zip(lines, begins, strict=True):
        assert line.startswith(begin)
    assert lines[-1].endswith(f"cannot be made: {tmp_path}/hook is a file")
    assert "xyz" not in said.stderr


def test_a_target_file_that_breaks_is_said_once_and_a_pattern_without_files_is_a_warning(
    watchtower: Command, tmp_path: Path
) -> None:
    config = tmp_path / "watchtower.toml"
    (tmp_path / "nodes.json").write_text("{")
    config.write_text('[poll]\ntarget_files = ["nodes.json", "more-*.json"]\n')
    said = watchtower("check-config", str(config))
    assert said.returncode == 2
    assert said.stderr.count("nodes.json") == 1
    config.write_text('[poll]\ntargets = ["gpu-a"]\ntarget_files = ["more-*.json"]\n')
    said = watchtower("check-config", str(config))
    assert said.returncode == 0
    assert "warning: poll.target_files:" in said.stderr
    assert "more-*.json matches no file yet" in said.stderr


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("taken", "is a file, not a directory"),
        ("taken/more/store", "taken is a file"),
        ("new/er/store", None),
    ],
)
def test_a_store_that_cannot_be_is_said(
    watchtower: Command, tmp_path: Path, at: str, words: str | None
) -> None:
    (tmp_path / "taken").write_text("")
    config = tmp_path / "watchtower.toml"
    config.write_text(f'[poll]\ntargets = ["gpu-a"]\n[store]\ndirectory = "{at}"\n')
    said = watchtower("check-config", str(config))
    assert said.returncode == (0 if words is None else 2)
    assert words is None or (f"store.directory: {tmp_path}/{at} " in said.stderr and words in said.stderr)
    assert not (tmp_path / "new").exists()


def test_a_store_that_this_user_may_not_write_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o555)
    script = "import sys; from pathlib import Path; from watchtower.cli.check_files import directory_mistake as d; print(d(Path(sys.argv[1])))"
    command = [sys.executable, "-c", script, str(tmp_path / "store" / "below")]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not installed, and root may write everywhere")
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", *command]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert f"cannot be made: {tmp_path}/store is not writable by this user" in said.stdout, said.stderr


def test_certificates_that_are_out_of_date_are_said(watchtower: Command, tmp_path: Path) -> None:
    now = dt.datetime.fromtimestamp(SystemClock().now(), dt.UTC)
    ca = trustme.CA()
    old = ca.issue_cert("watcher", not_after=now - dt.timedelta(days=1))
    soon = ca.issue_cert("watcher", not_after=now + dt.timedelta(days=5))
    ca.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    config = tmp_path / "watchtower.toml"
    config.write_text('[poll]\ntargets = ["gpu-a"]\nca_file = "ca.crt"\ncert_file = "watcher.pem"\n')
    old.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "watcher.pem"))
    said = watchtower("check-config", str(config))
    assert (said.returncode, "watcher.pem expired on" in said.stderr) == (2, True), said.stderr
    soon.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "watcher.pem"))
    said = watchtower("check-config", str(config))
    assert (said.returncode, "watcher.pem expires on" in said.stderr) == (0, True), said.stderr
