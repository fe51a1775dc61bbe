"""docs/metrics.md, the deployed rules and the code name the same series."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.views import run_view
from watchtower.metrics import Metrics
from watchtower.model import PollFailure, RunState

ROOT = Path(__file__).parents[2]


def exposed(**view: object) -> str:
    metrics = Metrics(CollectorRegistry(), version="0", instance="test")
    metrics.show(lambda: (run_view(**view),), lambda: (2, 1))
    return metrics.expose().decode()


def names(text: str) -> set[str]:
    found = set()
    for family in text_string_to_metric_families(text):
        if family.name.startswith("watchtower_") and not family.name.endswith("_created"):
            found.add(f"{family.name}_total" if family.type == "counter" else family.name)
    return found


def documented() -> set[str]:
    return set(re.findall(r"^\| `(watchtower_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))


def test_the_page_lists_every_series_and_no_other() -> None:
    assert names(exposed()) == documented()


def test_every_rule_reads_a_series_that_exists() -> None:
    rules = (ROOT / "deploy/prometheus/watchtower.rules.yml").read_text()
    assert set(re.findall(r"\bwatchtower_\w+", rules)) <= documented()


def test_every_poll_failure_is_named_on_the_page() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    assert all(f"`{failure.value}`" in page for failure in PollFailure)


def test_what_is_not_known_has_no_series() -> None:
    text = exposed(step=None, power_share=None, last_checkpoint_at=None)
    assert "watchtower_run_step{" not in text
    assert "watchtower_run_power_share_ratio{" not in text
    assert 'watchtower_run_state{run="slurm-4411",state="progressing"} 1.0' in text


def test_every_state_is_always_there() -> None:
    text = exposed()
    assert all(f'watchtower_runs{{state="{state}"}}' in text for state in RunState)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("check", [("rules", "watchtower.rules.yml"), ("config", "scrape.yml")])
def test_promtool_accepts_what_we_deploy(check: tuple[str, str]) -> None:
    kind, file = check
    extra = ["--syntax-only"] if kind == "config" else []
    done = subprocess.run(
        ["promtool", "check", kind, *extra, str(ROOT / "deploy/prometheus" / file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
