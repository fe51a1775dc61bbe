"""Which agents there are, from settings and from files that change under us."""

import json
from pathlib import Path

import pytest

from watchtower.poller.settings import PollSettings
from watchtower.poller.targets import Agent, TargetError, Targets, parse_target


@pytest.mark.parametrize(
    ("text", "tls", "name", "url"),
    [
        ("gpu-a:9477", False, "gpu-a", "http://gpu-a:9477"),
        ("gpu-a", True, "gpu-a", "https://gpu-a:9477"),
        ("gpu-a=127.0.0.1:9501", False, "gpu-a", "http://127.0.0.1:9501"),
        ("127.0.0.1:9501", False, "127.0.0.1:9501", "http://127.0.0.1:9501"),
        ("http://GPU-A.site:9477/", True, "GPU-A.site", "http://gpu-a.site:9477"),
        ("n1=[fd00::1]:9477", False, "n1", "http://[fd00::1]:9477"),
    ],
)
def test_a_target_names_its_node_and_its_url(text: str, tls: bool, name: str, url: str) -> None:
    assert parse_target(text, tls=tls) == Agent(name, url)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=",
        "gpu-a:port",
        "gpu-a:99999",
        "ftp://gpu-a",
        "user:pw@gpu-a",
        "gpu-a/path",
        "a b",
        "x y=gpu-a",
        "http://",
    ],
)
def test_what_is_no_target_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(TargetError, match="target"):
        parse_target(text, tls=False)


def write(path: Path, *targets: str, **labels: str) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps([{"targets": targets, "labels": labels}]))
    scratch.replace(path)


def names(targets: Targets) -> list[str]:
    return [agent.name for agent in targets.read()]


def test_a_target_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    write(file, "gpu-a:9477")
    targets = Targets(PollSettings(targets=("gpu-z",), target_files=(file,)))
    assert names(targets) == ["gpu-a", "gpu-z"]
    write(file, "gpu-a:9477", "gpu-b:9477")
    assert names(targets) == ["gpu-a", "gpu-b", "gpu-z"]


def test_a_broken_file_keeps_the_old_targets_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "nodes.json"
    write(file, "gpu-a:9477", "gpu-b:9477")
    targets = Targets(PollSettings(target_files=(file,)))
    targets.read()
    file.write_text('[{"targets": ["gpu-a:94')
    assert names(targets) == ["gpu-a", "gpu-b"]
    assert names(targets) == ["gpu-a", "gpu-b"]
    assert [record.getMessage().split()[0] for record in caplog.records] == ["target_file_broken"]
    assert str(file) in targets.broken[0]
    caplog.set_level("INFO")
    write(file, "gpu-c:9477")
    assert names(targets) == ["gpu-c"]
    assert targets.broken == ()


def test_a_file_that_vanishes_keeps_its_targets(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    write(file, "gpu-a")
    targets = Targets(PollSettings(target_files=(file,)))
    targets.read()
    file.unlink()
    assert names(targets) == ["gpu-a"]


def test_a_pattern_follows_the_files_that_match_it(tmp_path: Path) -> None:
    write(tmp_path / "rack1.json", "gpu-a")
    write(tmp_path / "rack2.json", "gpu-b")
    targets = Targets(PollSettings(target_files=(tmp_path / "*.json",)))
    assert names(targets) == ["gpu-a", "gpu-b"]
    (tmp_path / "rack1.json").unlink()
    assert names(targets) == ["gpu-b"]


def test_labels_name_the_node_and_choose_the_scheme(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    write(file, "10.0.0.5:9477", node="gpu-a", __scheme__="https", rack="7")
    assert Targets(PollSettings(target_files=(file,))).read() == (Agent("gpu-a", "https://10.0.0.5:9477"),)


@pytest.mark.parametrize("second", ["gpu-a=10.0.0.2", "gpu-b=10.0.0.1"])
def test_one_name_or_one_address_given_twice_is_asked_once(
    second: str, caplog: pytest.LogCaptureFixture
) -> None:
    targets = Targets(PollSettings(targets=("gpu-a=10.0.0.1", second)))
    assert names(targets) == ["gpu-a"]
    assert names(targets) == ["gpu-a"]
    assert [record.getMessage().split()[0] for record in caplog.records] == ["target_twice"]
