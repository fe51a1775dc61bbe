"""TOML to frozen settings: gathers every room's own struct, checks what only shows between rooms, lists every mistake. Opens nothing but that one file."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from watchtower.alerts.settings import AlertSettings, Route
from watchtower.classify.pace import FloorError, parse_floor
from watchtower.classify.settings import RunRule, Thresholds
from watchtower.config.reader import Reader
from watchtower.judge.settings import JudgeSettings
from watchtower.notify.deadman import DeadManSettings
from watchtower.notify.pagerduty import PagerDutySettings
from watchtower.notify.slack import SlackSettings
from watchtower.poller.settings import PollSettings
from watchtower.poller.targets import TargetError, parse_target
from watchtower.web.settings import WebSettings

_MAX_BYTES = 4 * 1024 * 1024


class ConfigError(Exception):
    """The configuration cannot be used.

    Args:
        mistakes: one sentence each, all that were found, with file and key.
        rest: the settings without what is wrong in them, so that the files that they name can be looked at in the same go;
            None when there are none. Not to be used for anything else.
    """

    def __init__(self, mistakes: tuple[str, ...], rest: "Config | None" = None) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes
        self.rest = rest


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[store]`: where things are kept (a local disk; SQLite's WAL does not work over NFS or Lustre), and for how long."""

    directory: Path = Path("/var/lib/watchtower")
    keep_samples_days: float = 7.0
    keep_history_days: float = 30.0

    def __post_init__(self) -> None:
        """Refuse to keep nothing.

        Raises:
            ValueError: names the key.
        """
        for key in ("keep_samples_days", "keep_history_days"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key):g}")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a site can say, checked. `judge` holds `[[runs]]` and `[alerts]`, routes included."""

    instance: str = "watchtower"
    web: WebSettings = WebSettings()
    store: StoreSettings = StoreSettings()
    poll: PollSettings = PollSettings()
    judge: Thresholds = Thresholds()
    runs: tuple[RunRule, ...] = ()
    alerts: AlertSettings = AlertSettings()
    slack: tuple[SlackSettings, ...] = ()
    pagerduty: tuple[PagerDutySettings, ...] = ()
    deadman: DeadManSettings | None = None


def load(path: Path) -> Config:
    """Read and check one configuration file. An empty file is valid: no agents, no sinks, every default.

    Raises:
        ConfigError: with every mistake that was found.
    """
    reader = Reader(path.parent.absolute(), Config, _ELSEWHERE)
    config = reader.table(_document(path), Config, "")
    if not isinstance(config, Config):
        raise ConfigError(tuple(f"{path}: {mistake}" for mistake in reader.mistakes))
    wrong_targets = dict(_targets(config))
    for at, what in (*_between_rooms(config, reader), *wrong_targets.items()):
        reader.wrong(at, what)
    if reader.mistakes:
        rest = tuple(
            target
            for n, target in enumerate(config.poll.targets)
            if f"poll.targets[{n}]" not in wrong_targets
        )
        poll = msgspec.structs.replace(config.poll, targets=rest)
        raise ConfigError(
            tuple(f"{path}: {mistake}" for mistake in reader.mistakes),
            msgspec.structs.replace(config, poll=poll),
        )
    return config


def judge_settings(config: Config) -> JudgeSettings:
    """What the judge is told: thresholds, runs, and alerts with one route per sink where the settings give none."""
    routes = config.alerts.routes or (
        *(Route(sink.name, sink.min_severity) for sink in config.slack),
        *(Route(sink.name, sink.min_severity) for sink in config.pagerduty),
    )
    return JudgeSettings(
        **msgspec.structs.asdict(config.judge),
        runs=config.runs,
        alerts=msgspec.structs.replace(config.alerts, instance=config.instance, routes=routes),
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            body = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError((f"cannot read {path}: {error.strerror}",)) from None
    if len(body) > _MAX_BYTES:
        raise ConfigError((f"{path} is larger than {_MAX_BYTES} bytes; is it the right file?",))
    try:
        return tomllib.loads(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise ConfigError((f"{path} is not text in UTF-8",)) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError((f"{path} is not valid TOML: {error}",)) from None


_Mistakes = Iterator[tuple[str, str]]  # key, what is wrong with it


def _between_rooms(config: Config, reader: Reader) -> _Mistakes:
    if "poll.interval_s" not in reader.broken:
        yield from _intervals(config)
    for name, value in msgspec.structs.asdict(config.judge).items():
        if not value > 0:
            yield f"judge.{name}", f"must be above 0, got {value:g}"
        elif "share" in name and value > 1:
            yield f"judge.{name}", f"is a share, at most 1; got {value:g}"
    for number, rule in zip(reader.numbers.get("runs", ()), config.runs, strict=False):
        yield from _rule(f"runs[{number}]", rule)
    poll = config.poll
    if poll.cert_file is not None and poll.ca_file is None and "poll.ca_file" not in reader.broken:
        plain = [target for target in poll.targets if not target.rpartition("=")[2].startswith("https://")]
        if plain or poll.target_files:
            what = "is set without ca_file, so agents would be asked over plain http; set ca_file, too"
            yield "poll.cert_file", what
    yield from _sinks(config, reader)
    if not config.instance.strip():
        yield "instance", "must not be empty; it is part of every incident's key"


def _targets(config: Config) -> _Mistakes:
    for number, target in enumerate(config.poll.targets):
        try:
            parse_target(target, tls=config.poll.ca_file is not None)
        except TargetError as error:
            yield f"poll.targets[{number}]", str(error)


def _intervals(config: Config) -> _Mistakes:
    interval_s = config.poll.interval_s
    for name, value in msgspec.structs.asdict(config.judge).items():
        if (name.endswith("_hold_s") or name == "stale_after_s") and 0 < value < 2 * interval_s:
            what = f"{value:g} s is less than two polls (poll.interval_s = {interval_s:g})"
            yield f"judge.{name}", f"{what}, so one lost answer would count as evidence"
    if config.deadman is not None and config.deadman.interval_s < interval_s:
        what = f"{config.deadman.interval_s:g} is below poll.interval_s ({interval_s:g})"
        yield "deadman.interval_s", f"{what}; a ping can only follow a round"


def _rule(path: str, rule: RunRule) -> _Mistakes:
    if not rule.match:
        yield f"{path}.match", "is empty and would match nothing; `*` matches every run"
    if rule.expected_ranks is not None and rule.expected_ranks < 1:
        yield f"{path}.expected_ranks", f"must be at least 1, got {rule.expected_ranks}"
    if rule.collective_timeout_s is not None and not rule.collective_timeout_s > 0:
        yield f"{path}.collective_timeout_s", f"must be above 0, got {rule.collective_timeout_s:g}"
    if rule.throughput_floor is not None:
        try:
            parse_floor(rule.throughput_floor)
        except FloorError as error:
            yield f"{path}.throughput_floor", str(error)


def _sinks(config: Config, reader: Reader) -> _Mistakes:
    read: tuple[tuple[str, tuple[SlackSettings | PagerDutySettings, ...]], ...] = (
        ("slack", config.slack),
        ("pagerduty", config.pagerduty),
    )
    first: dict[str, str] = {}
    for kind, sinks in read:
        for number, sink in zip(reader.numbers.get(kind, ()), sinks, strict=False):
            path = f"{kind}[{number}]"
            if f"{path}.name" not in reader.broken and first.setdefault(sink.name, path) != path:
                what = f"{sink.name!r} is the name of {first[sink.name]} already; give each sink a name of its own"
                yield f"{path}.name", what
    if any(at.startswith(("slack", "pagerduty")) for at in reader.broken):
        return  # the sink that a route means may be one that could not be read
    for number, route in zip(reader.numbers.get("alerts.routes", ()), config.alerts.routes, strict=False):
        if route.sink not in first:
            known = ", ".join(sorted(first)) or "none is configured"
            yield f"alerts.routes[{number}].sink", f"there is no sink {route.sink!r} (sinks: {known})"


_ELSEWHERE: dict[type, dict[str, str]] = {
    AlertSettings: {"instance": "set `instance` at the top of the file instead"}
}
