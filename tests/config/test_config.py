"""What a configuration may say, and in which words each mistake comes back."""

from pathlib import Path

import pytest

from watchtower.config import Config, ConfigError, judge_settings, load
from watchtower.model import Severity

ROOT = Path(__file__).parents[2]


def written(folder: Path, text: str) -> Path:
    path = folder / "watchtower.toml"
    path.write_text(text)
    return path


def mistakes(folder: Path, text: str) -> list[str]:
    path = written(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert all(mistake.startswith(f"{path}: ") for mistake in caught.value.mistakes)
    return [mistake.removeprefix(f"{path}: ") for mistake in caught.value.mistakes]


def test_a_file_of_comments_alone_is_valid_and_all_defaults(tmp_path: Path) -> None:
    assert load(written(tmp_path, "# nothing\n")) == Config()


def test_the_example_is_valid_and_says_what_it_looks_like() -> None:
    config = load(ROOT / "deploy" / "watchtower.example.toml")
    settings = judge_settings(config)
    assert settings.alerts.instance == "cluster-1"
    assert [(route.sink, route.min_severity) for route in settings.alerts.routes] == [
        ("slack", Severity.WARNING),
        ("pagerduty", Severity.CRITICAL),
    ]
    assert settings.runs[0].throughput_floor == "9000 tokens/s"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("instanse = 'x'", "instanse: unknown key; did you mean `instance`?"),
        ("[poll]\nintervall_s = 5", "poll.intervall_s: unknown key; did you mean `interval_s`?"),
        ("[judge]\ninterval_s = 5", "judge.interval_s: unknown key; it belongs in [poll]"),
        ("[web]\nxyzzy = 5", "web.xyzzy: unknown key"),
        ("[poll]\ninterval_s = '5'", "poll.interval_s: must be a number, got text"),
        ("[poll]\ninterval_s = nan", "poll.interval_s: must be a number, got nan"),
        ("[poll]\nca_file = 3", "poll.ca_file: must be a path in quotes, got 3"),
        ("[[runs]]\nexpected_ranks = 2", "runs[0].match: is missing"),
        ("runs = 3", "runs: must be a list of tables, written [[runs]]"),
        ("poll = 3", "poll: must be a table, got 3"),
        (
            "[[slack]]\nurl_file='a'\nmin_severity='loud'",
            "slack[0].min_severity: must be one of info, warning, critical; got 'loud'",
        ),
        ("[alerts]\ninstance = 'x'", "alerts.instance: set `instance` at the top of the file instead"),
        ("[alerts]\nkeep_s = -1", "alerts: keep_s must not be negative"),
        (
            "[poll]\nca_file='${NOT_SET_HERE}/x'",
            "poll.ca_file: ${NOT_SET_HERE} is not set in the environment",
        ),
        ("[poll]\ntimeout_s = 5", "poll: timeout_s (5) must be above 0 and below interval_s (5)"),
        ("[judge]\ngone_hold_s = 9", "judge.gone_hold_s: 9 s is less than two polls"),
        ("[judge]\nslow_share = 1.2", "judge.slow_share: is a share, at most 1; got 1.2"),
        ("[judge]\nslow_hold_s = 0", "judge.slow_hold_s: must be above 0"),
        ("[[runs]]\nmatch='*'\nthroughput_floor='9000'", "runs[0].throughput_floor: '9000' needs a unit"),
        ("[[runs]]\nmatch='*'\nexpected_ranks=0", "runs[0].expected_ranks: must be at least 1"),
        ("[[runs]]\nmatch='*'\ncollective_timeout_s=0", "runs[0].collective_timeout_s: must be above 0"),
        ("[poll]\ntargets=['gpu-a','a/b']", "poll.targets[1]: target 'a/b' has a path"),
        (
            "[[slack]]\nurl_file='a'\n[[slack]]\nurl_file='b'",
            "slack[1].name: 'slack' is the name of slack[0] already",
        ),
        ("[[alerts.routes]]\nsink='slak'", "alerts.routes[0].sink: there is no sink 'slak'"),
        ("[deadman]\nurl_file='x'\ninterval_s=1", "deadman.interval_s: 1 is below poll.interval_s"),
        (
            "[web]\nlisten='0.0.0.0:9478'",
            "web: listen = '0.0.0.0:9478' is open to other machines without a token",
        ),
        ("instance = ' '", "instance: must not be empty"),
        ("[store]\nkeep_samples_days = 0.5", "store: keep_samples_days must be at least 1, got 0.5"),
        (
            "[poll]\ntargets=['gpu-a']\ncert_file='x.crt'\nkey_file='x.key'",
            "poll.cert_file: is set without ca_file, so agents would be asked over plain http",
        ),
        (
            "[[pagerduty]]\nrouting_key_file='a'\nbase_url='events'",
            "pagerduty[0]: base_url must be a web address that begins with https://, got 'events'",
        ),
    ],
)
def test_each_mistake_names_its_key(tmp_path: Path, text: str, mistake: str) -> None:
    found = mistakes(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(mistake)


def test_all_mistakes_are_listed_at_once(tmp_path: Path) -> None:
    text = "instanse = 1\n[poll]\ninterval_s = '5'\ntargets = 3\n[[runs]]\n[web]\nlisten = 'nowhere'\n"
    assert [mistake.split(":")[0] for mistake in mistakes(tmp_path, text)] == [
        "instanse",
        "poll.interval_s",
        "poll.targets",
        "runs[0].match",
        "web",
    ]


def test_a_mistake_in_one_table_hides_none_in_another_and_none_beside_it(tmp_path: Path) -> None:
    text = """
        [store]
        directory = 3
        keep_samples_days = 0
        keep_history_days = 0
        [poll]
        interval_s = 900
        timeout_s = 600
        targets = ["gpu-a", "a/b"]
        [judge]
        slow_share = 7
        gone_hold_s = "x"
        [[runs]]
        expected_ranks = 3
        [[runs]]
        match = "*"
        expected_ranks = 0
        [[slack]]
        url_file = "a"
        [[slack]]
        url_file = "b"
    """
    assert [mistake.split(",")[0] for mistake in mistakes(tmp_path, text)] == [
        "store.directory: must be a path in quotes",
        "store: keep_samples_days must be at least 1",
        "store: keep_history_days must be at least 1",
        "poll: interval_s must be from 1 to 300 seconds",
        "judge.gone_hold_s: must be a number",
        "runs[0].match: is missing",
        "judge.slow_share: is a share",
        "runs[1].expected_ranks: must be at least 1",
        "slack[1].name: 'slack' is the name of slack[0] already; give each sink a name of its own",
        "poll.targets[1]: target 'a/b' has a path; give scheme",
    ]


def test_what_follows_from_a_mistake_is_not_a_mistake_of_its_own(tmp_path: Path) -> None:
    text = """
        [poll]
        interval_s = "30"
        timeout_s = 20
        [deadman]
        url_file = "x"
        interval_s = 2
        [[slack]]
        name = 3
        url_file = "a"
        [[slack]]
        url_file = "b"
        [[alerts.routes]]
        sink = "loud"
    """
    assert mistakes(tmp_path, text) == [
        "poll.interval_s: must be a number, got text",
        "slack[0].name: must be text, got a whole number",
    ]


def test_what_is_right_beside_a_mistake_can_still_be_looked_into(tmp_path: Path) -> None:
    path = written(tmp_path, "instanse = 1\n[poll]\ntargets = ['gpu-a', 'a/b']\ntoken_file = 't'\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.rest is not None
    assert caught.value.rest.poll.targets == ("gpu-a",)
    assert caught.value.rest.poll.token_file == tmp_path / "t"


def test_a_client_certificate_is_shown_to_agents_that_are_asked_over_https(tmp_path: Path) -> None:
    text = "[poll]\ntargets=['a=https://gpu-a']\ncert_file='x.crt'\n"
    assert load(written(tmp_path, text)).poll.cert_file == tmp_path / "x.crt"


def test_a_bare_name_means_the_credential_of_that_name_where_systemd_gives_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "token").write_text("x")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    poll = load(written(tmp_path, "[poll]\ntoken_file = 'token'\nca_file = 'ca.crt'\n")).poll
    assert (poll.token_file, poll.ca_file) == (credentials / "token", tmp_path / "ca.crt")
    poll = load(written(tmp_path, "[poll]\ntoken_file = './token'\n")).poll
    assert poll.token_file == tmp_path / "token"


def test_what_is_no_toml_is_said_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "[poll]\ninterval_s =\n")
    with pytest.raises(ConfigError, match=r"watchtower\.toml is not valid TOML: .*line 2"):
        load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.toml: No such file"):
        load(tmp_path / "gone.toml")


def test_paths_start_at_the_configurations_folder_and_take_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/watchtower.service")
    text = """
        [poll]
        token_file = "token"
        target_files = ["targets/*.json", "/etc/more.json"]
        [store]
        directory = "store"
        [[slack]]
        url_file = "${CREDENTIALS_DIRECTORY}/slack"
    """
    config = load(written(tmp_path, text))
    assert config.poll.token_file == tmp_path / "token"
    assert config.poll.target_files == (tmp_path / "targets/*.json", Path("/etc/more.json"))
    assert config.store.directory == tmp_path / "store"
    assert config.slack[0].url_file == "/run/credentials/watchtower.service/slack"


def test_holds_grow_with_the_interval(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "[poll]\ninterval_s = 15\n")
    assert {mistake.split(":")[0] for mistake in found} == {"judge.gone_hold_s", "judge.lost_hold_s"}


def test_routes_of_ones_own_replace_those_of_the_sinks(tmp_path: Path) -> None:
    text = "[[slack]]\nurl_file='a'\n[[alerts.routes]]\nsink='slack'\nmin_severity='info'\n"
    routes = judge_settings(load(written(tmp_path, text))).alerts.routes
    assert [(route.sink, route.min_severity) for route in routes] == [("slack", Severity.INFO)]


def test_a_value_is_never_repeated_where_it_could_be_a_secret(tmp_path: Path) -> None:
    text = "[[pagerduty]]\nrouting_key = '0123456789abcdef0123456789abcdef'\n"
    assert "0123456789abcdef" not in "".join(mistakes(tmp_path, text))
