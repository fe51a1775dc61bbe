"""TOML to frozen settings: gathers every room's own struct, checks what only shows between rooms, lists every mistake. Opens nothing but that one file."""

import difflib
import math
import os
import re
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from watchtower.alerts.settings import AlertSettings, Route
from watchtower.classify.pace import FloorError, parse_floor
from watchtower.classify.settings import RunRule, Thresholds
from watchtower.judge.settings import JudgeSettings
from watchtower.notify.deadman import DeadManSettings
from watchtower.notify.pagerduty import PagerDutySettings
from watchtower.notify.slack import SlackSettings
from watchtower.poller.settings import PollSettings
from watchtower.poller.targets import TargetError, parse_target
from watchtower.web.settings import WebSettings

_MAX_BYTES = 4 * 1024 * 1024


class ConfigError(Exception):
    """The configuration cannot be used; `mistakes` holds one sentence each, all that were found, with file and key."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


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
        if self.keep_samples_days < 1 or self.keep_history_days < 1:
            raise ValueError("keep_samples_days and keep_history_days must be at least 1")


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
    reader = _Reader(path.parent.absolute())
    config = reader.table(_document(path), Config, "")
    if not isinstance(config, Config) or reader.mistakes:
        raise ConfigError(tuple(f"{path}: {mistake}" for mistake in reader.mistakes))
    mistakes = tuple(_between_rooms(config))
    if mistakes:
        raise ConfigError(tuple(f"{path}: {mistake}" for mistake in mistakes))
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


def _between_rooms(config: Config) -> Iterator[str]:
    yield from _thresholds(config)
    for number, rule in enumerate(config.runs):
        yield from _rule(f"runs[{number}]", rule)
    for number, target in enumerate(config.poll.targets):
        try:
            parse_target(target, tls=config.poll.ca_file is not None)
        except TargetError as error:
            yield f"poll.targets[{number}]: {error}"
    yield from _sinks(config)
    if not config.instance.strip():
        yield "instance: must not be empty; it is part of every incident's key"


def _thresholds(config: Config) -> Iterator[str]:
    least = 2 * config.poll.interval_s
    for name, value in msgspec.structs.asdict(config.judge).items():
        if not value > 0:
            yield f"judge.{name}: must be above 0, got {value:g}"
        elif "share" in name and value > 1:
            yield f"judge.{name}: is a share, at most 1; got {value:g}"
        elif (name.endswith("_hold_s") or name == "stale_after_s") and value < least:
            yield (
                f"judge.{name}: {value:g} s is less than two polls (poll.interval_s = {config.poll.interval_s:g}), "
                "so one lost answer would count as evidence"
            )
    if config.deadman is not None and config.deadman.interval_s < config.poll.interval_s:
        yield (
            f"deadman.interval_s: {config.deadman.interval_s:g} is below poll.interval_s "
            f"({config.poll.interval_s:g}); a ping can only follow a round"
        )


def _rule(path: str, rule: RunRule) -> Iterator[str]:
    if not rule.match:
        yield f"{path}.match: is empty and would match nothing; `*` matches every run"
    if rule.expected_ranks is not None and rule.expected_ranks < 1:
        yield f"{path}.expected_ranks: must be at least 1, got {rule.expected_ranks}"
    if rule.collective_timeout_s is not None and not rule.collective_timeout_s > 0:
        yield f"{path}.collective_timeout_s: must be above 0, got {rule.collective_timeout_s:g}"
    if rule.throughput_floor is not None:
        try:
            parse_floor(rule.throughput_floor)
        except FloorError as error:
            yield f"{path}.throughput_floor: {error}"


def _sinks(config: Config) -> Iterator[str]:
    names = [
        *((f"slack[{n}]", sink.name) for n, sink in enumerate(config.slack)),
        *((f"pagerduty[{n}]", sink.name) for n, sink in enumerate(config.pagerduty)),
    ]
    first: dict[str, str] = {}
    for path, name in names:
        if first.setdefault(name, path) != path:
            yield f"{path}.name: {name!r} is the name of {first[name]} already; give each sink a name of its own"
    for number, route in enumerate(config.alerts.routes):
        if route.sink not in first:
            known = ", ".join(sorted(first)) or "none is configured"
            yield f"alerts.routes[{number}].sink: there is no sink {route.sink!r} (sinks: {known})"


# What belongs to a struct but is said elsewhere: struct -> field -> where.
_ELSEWHERE: dict[type, dict[str, str]] = {
    AlertSettings: {"instance": "set `instance` at the top of the file instead"}
}
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class _Reader:
    """Turns tables into structs and goes on after a mistake, so that one look shows them all.

    Keys that end in `_file`, `_files` or `directory` are paths: relative ones start at the configuration's own folder, and
    `${CREDENTIALS_DIRECTORY}` and the like are filled in from the environment, as systemd sets them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.mistakes: list[str] = []

    def table(self, given: Any, kind: type[msgspec.Struct], path: str) -> msgspec.Struct | None:
        """Read one table; None when any of its fields is a mistake."""
        if not isinstance(given, dict):
            self._wrong(path, f"must be a table, got {_said(given)}")
            return None
        before = len(self.mistakes)
        moved = _ELSEWHERE.get(kind, {})
        types = {name: hint for name, hint in get_type_hints(kind).items() if name not in moved}
        values: dict[str, Any] = {}
        for key, value in given.items():
            at = f"{path}.{key}" if path else key
            if key in types:
                values[key] = self._value(value, types[key], at, key)
            elif key in moved:
                self._wrong(at, moved[key])
            else:
                self._wrong(at, f"unknown key{_suggestion(key, types)}")
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in given:
                self._wrong(f"{path}.{field.name}", "is missing")
        if len(self.mistakes) > before:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            self._wrong(path or "top level", str(error))
            return None

    def _value(self, given: Any, hint: Any, at: str, key: str) -> Any:
        if get_origin(hint) in {Union, UnionType}:
            hint = next(kind for kind in get_args(hint) if kind is not NoneType)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.table(given, hint, at)
        inner = get_args(hint)[0] if get_origin(hint) is tuple else None
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            if not isinstance(given, list):
                self._wrong(at, f"must be a list of tables, written [[{at}]]")
                return ()
            return tuple(self.table(one, inner, f"{at}[{number}]") for number, one in enumerate(given))
        try:
            if key.endswith(("_file", "_files", "directory")):
                given = self._paths(given)
            return _leaf(given, hint)
        except ValueError as error:
            self._wrong(at, str(error))
            return None

    def _paths(self, given: Any) -> Any:
        if isinstance(given, list):
            return [self._paths(one) for one in given]
        if not isinstance(given, str) or not given:
            raise ValueError(f"must be a path in quotes, got {_said(given)}")
        for name in _VARIABLE.findall(given):
            if name not in os.environ:
                raise ValueError(
                    f"${{{name}}} is not set in the environment (systemd sets it for its services)"
                )
        return str(self._folder / _VARIABLE.sub(lambda found: os.environ[found[1]], given))

    def _wrong(self, at: str, what: str) -> None:
        self.mistakes.append(f"{at}: {what}")


def _leaf(given: Any, hint: Any) -> Any:
    if isinstance(given, float) and not math.isfinite(given):
        raise ValueError(f"must be a number, got {given}")
    if isinstance(hint, type) and issubclass(hint, StrEnum) and given not in list(hint):
        raise ValueError(f"must be one of {', '.join(hint)}; got {_said(given)}")
    try:
        return msgspec.convert(given, hint, dec_hook=lambda kind, value: kind(value))
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        for theirs, ours in _WORDS:
            what = what.replace(theirs, ours)
        raise ValueError(f"{where.rstrip('`')}: {what}".removeprefix(": ")) from None


_WORDS = (
    ("Expected", "must be"),
    ("`", ""),
    ("str", "text"),
    ("float", "a number"),
    ("int", "a whole number"),
    ("bool", "true or false"),
    ("array", "a list"),
)


def _suggestion(key: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean `{close[0]}`?"
    for section, hint in get_type_hints(Config).items():
        kinds = [hint, *get_args(hint)]
        if any(isinstance(kind, type) and key in getattr(kind, "__struct_fields__", ()) for kind in kinds):
            return f"; it belongs in [{section}]"
    return ""


def _said(given: Any) -> str:
    if isinstance(given, (list, dict)):
        return "a list" if isinstance(given, list) else "a table"
    return repr(given)[:60]
