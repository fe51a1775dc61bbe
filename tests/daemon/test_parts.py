"""Each file that cannot be used is named before anything starts."""

from pathlib import Path

import pytest

from watchtower.config import Config, load
from watchtower.daemon.parts import StartError, build


def written(folder: Path, text: str) -> Config:
    path = folder / "watchtower.toml"
    path.write_text(text)
    return load(path)


async def test_every_unusable_file_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abc\n")
    text = """
        [poll]
        token_file = "gone-1"
        ca_file = "gone-2"
        [web]
        token_file = "gone-3"
        [[slack]]
        url_file = "gone-4"
        [[pagerduty]]
        routing_key_file = "short"
        [deadman]
        url_file = "gone-5"
    """
    with pytest.raises(StartError) as caught:
        await build(written(tmp_path, text))
    said = caught.value.mistakes
    keys = (
        "poll.token_file",
        "poll.ca_file",
        "web.token_file",
        "slack",
        "pagerduty",
        "deadman.url_file",
        "no agents",
    )
    assert len(said) == len(keys)
    for key, sentence in zip(sorted(keys), sorted(said), strict=True):
        assert sentence.startswith(key)
    assert "gone-4" in "".join(said)
    assert "32" in "".join(said)


async def test_what_is_whole_is_built_and_closed(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("http://127.0.0.1:1/hook\n")
    (tmp_path / "nodes.json").write_text('[{"targets": ["gpu-b:9477"]}]')
    text = """
        [poll]
        targets = ["gpu-a"]
        target_files = ["nodes.json", "not-yet.json"]
        [[slack]]
        url_file = "url"
    """
    parts = await build(written(tmp_path, text))
    assert [agent.name for agent in parts.agents] == ["gpu-a", "gpu-b"]
    assert [sink.name for sink in parts.sinks] == ["slack"]
    assert len(parts.targets.broken) == 1
    await parts.aclose()


async def test_no_agents_is_a_reason_not_to_start() -> None:
    with pytest.raises(StartError, match="no agents: set "):
        await build(Config())
