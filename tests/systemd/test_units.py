"""Our units stand up to systemd's own judgement; decides nothing about a running system."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "systemd"
SECURITY_BARS = {"watchtower.service": 2.0, "watchtower-agent.service": 3.5}

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("unit", sorted(SECURITY_BARS))
def test_systemd_finds_no_mistake_in_a_unit(unit: str, tmp_path: Path) -> None:
    # verify wants the program to exist; where it is installed is the administrator's choice.
    text = (UNITS / unit).read_text().replace("/opt/watchtower/bin/watchtower", sys.executable)
    copy = tmp_path / unit
    copy.write_text(text)
    result = analyze("verify", str(copy))
    complaints = [line for line in result.stderr.splitlines() if unit in line]
    assert (result.returncode, complaints) == (0, [])


@pytest.mark.parametrize(("unit", "bar"), sorted(SECURITY_BARS.items()))
def test_a_unit_is_no_more_exposed_than_its_bar(unit: str, bar: float) -> None:
    result = analyze("security", "--offline=true", "--no-pager", str(UNITS / unit))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", result.stdout)
    assert found is not None, result.stderr
    assert float(found[1]) <= bar


@pytest.mark.parametrize("unit", sorted(SECURITY_BARS))
def test_a_unit_says_when_it_is_ready_and_is_restarted_when_it_no_longer_works(unit: str) -> None:
    lines = (UNITS / unit).read_text().splitlines()
    assert {"Type=notify", "WatchdogSec=60", "Restart=always", "StartLimitIntervalSec=0"} <= set(lines)


@pytest.mark.parametrize("unit", sorted(SECURITY_BARS))
def test_a_unit_holds_no_secret(unit: str) -> None:
    assert "Environment=" not in (UNITS / unit).read_text()


def test_the_watcher_gets_every_file_of_the_example_as_a_credential_of_the_same_name() -> None:
    # Its user is made up at each start, and can read no file of root's.
    example = (UNITS.parent / "deploy" / "watchtower.example.toml").read_text()
    named = set(re.findall(r'^#? ?\w+_file = "([\w.-]+)"', example, re.MULTILINE))
    unit = (UNITS / "watchtower.service").read_text()
    offered = re.findall(r"^#?LoadCredential=([\w.-]+):/etc/watchtower/([\w.-]+)$", unit, re.MULTILINE)
    assert named == {name for name, _ in offered}
    assert all(name == file for name, file in offered)
