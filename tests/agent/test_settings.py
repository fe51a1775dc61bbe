from pathlib import Path

import pytest

from watchtower.agent.settings import AgentSettings, SettingsError, load


def test_out_of_the_box_only_this_machine_can_ask() -> None:
    settings = load(None, {})
    assert settings.address() == ("127.0.0.1", 9477)
    assert settings.is_local()


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('node = "gpu-a"\nlisten = "[::1]:9000"\nlog_globs = ["/logs/{run_id}/{rank}.log"]\n')
    settings = load(file, {"node": "gpu-b", "insecure": None})
    assert (settings.node, settings.address()) == ("gpu-b", ("::1", 9000))
    assert settings.node_settings().log_globs == ("/logs/{run_id}/{rank}.log",)


def test_beyond_this_machine_it_wants_a_token_or_to_be_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="without a token"):
        load(None, {"listen": "0.0.0.0:9477"})
    assert load(None, {"listen": "0.0.0.0:9477", "insecure": True}).insecure
    assert load(None, {"listen": "0.0.0.0:9477", "token_file": tmp_path / "token"}).token_file


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("listn = 'x'", "unknown key listn; did you mean listen?"),
        ("interval_s = 'x'", "interval_s"),
        ("interval_s = 0", "interval_s = 0.0 must be more than 0"),
        ("listen = '9477'", "listen = '9477' is not host:port"),
        ("listen = 'a:70000'", "is not host:port"),
        ("tls_cert = '/a'", "tls_cert and tls_key go together"),
        ("client_ca = '/a'", "client_ca needs tls_cert"),
        ("sweep_deadline_s = 60", "end_after_s must be longer"),
        ("release_min = -1", "release_min"),
        ("node = 'gpu a'", "node = 'gpu a' cannot be a node's name"),
        ("node = 3", "node: must be str, got int"),
        ("proc_root = '/no/such/place'", "proc_root = /no/such/place is not a directory"),
        ("x = ", "is not TOML"),
    ],
)
def test_each_mistake_is_one_sentence_with_file_and_key(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    assert sentence in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value).removesuffix("\n")


def test_the_example_is_valid_and_answers_to_the_watcher_alone() -> None:
    settings = load(Path(__file__).parents[2] / "deploy" / "agent.example.toml", {})
    assert not settings.is_local()
    assert settings.client_ca == Path("/etc/watchtower/ca.crt")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("listn = 1\nlisten = 'x'\ninterval_s = 'x'\nhistory_s = 0\ntls_cert = '/a'\n")
    with pytest.raises(SettingsError) as caught:
        load(file, {"node": "a/b"})
    lines = [line.removeprefix(f"{file}: ") for line in str(caught.value).split("\n")]
    begins = (
        "unknown key listn", "interval_s: ", "tls_cert and", "listen = 'x'", "node = 'a/b'", "history_s = 0"
    )  # fmt: skip
    for line, begin in zip(lines, begins, strict=True):
        assert line.startswith(begin)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml", {})


def test_a_name_counts_as_this_machine_only_when_it_is_localhost() -> None:
    assert AgentSettings(listen="localhost:1").is_local()
    assert not AgentSettings(listen="gpu-a:1").is_local()
