"""What `watchtower check-config` says about good and bad configurations."""

from pathlib import Path

from tests.cli.conftest import Command


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
