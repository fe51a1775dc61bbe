"""Says which agents there are: from the settings, and from Prometheus file_sd files that are read again when they change. Asks nobody."""

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from watchtower.poller.settings import PollSettings
from watchtower.wire import DEFAULT_AGENT_PORT

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_MAX_FILE_BYTES = 16 * 1024 * 1024


class Agent(msgspec.Struct, frozen=True):
    """One agent: the name we know its node by, and where it answers."""

    name: str
    url: str  # scheme://host:port, no path


class TargetError(Exception):
    """A target or a target file cannot be used; the message says which and why."""


class _Group(msgspec.Struct):
    """One group of a file_sd file. Source: Prometheus, `<file_sd_config>`."""

    targets: list[str]
    labels: dict[str, str] = {}


def parse_target(text: str, *, tls: bool, name: str | None = None) -> Agent:
    """Read one target.

    Args:
        text: `host`, `host:port`, `http(s)://host:port`, each also as `name=…`.
        tls: whether a target without a scheme is asked over https.
        name: the node's name where it is known from elsewhere; else the part before `=`, else the host, and `host:port` when
            the port is not the usual one (so that several agents on one host differ).

    Raises:
        TargetError: not a target; the message quotes it.
    """
    given, equals, place = text.strip().rpartition("=")
    if "://" not in place:
        place = f"{'https' if tls else 'http'}://{place}"
    try:
        parts = urlsplit(place)
        port = parts.port or DEFAULT_AGENT_PORT
    except ValueError as error:
        raise TargetError(f"target {text!r}: {error}") from None
    host = parts.netloc.rpartition("@")[2].removesuffix(f":{parts.port}")
    if "@" in parts.netloc:
        raise TargetError(f"target {text!r} holds a user or password; use poll.token_file instead")
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host):
        raise TargetError(f"target {text!r} is not host:port, name=host:port or http(s)://host:port")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise TargetError(f"target {text!r} has a path; give scheme, host and port only")
    usual = host.strip("[]") if port == DEFAULT_AGENT_PORT else f"{host.strip('[]')}:{port}"
    node = name or (given if equals else usual)
    if not _NAME.fullmatch(node):
        raise TargetError(f"target {text!r}: {node!r} cannot be a node's name (letters, digits, . _ : -)")
    return Agent(node, f"{parts.scheme}://{host.lower()}:{port}")


def read_target_file(path: Path, *, tls: bool) -> tuple[Agent, ...]:
    """Read one file_sd file.

    The label `node` names the node of a group with a single target; `__scheme__` is honoured; other labels are ignored.

    Raises:
        TargetError: missing, unreadable or not in the format; the message names the file.
    """
    try:
        with path.open("rb") as file:
            body = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}") from None
    if len(body) > _MAX_FILE_BYTES:
        raise TargetError(f"{path}: larger than {_MAX_FILE_BYTES} bytes")
    try:
        groups = msgspec.json.decode(body, type=list[_Group])
    except (msgspec.DecodeError, RecursionError) as error:
        raise TargetError(f"{path}: not a Prometheus file_sd JSON file: {error}") from None
    agents = []
    for group in groups:
        name = group.labels.get("node") if len(group.targets) == 1 else None
        over_tls = {"https": True, "http": False}.get(group.labels.get("__scheme__", ""), tls)
        try:
            agents += [parse_target(target, tls=over_tls, name=name) for target in group.targets]
        except TargetError as error:
            raise TargetError(f"{path}: {error}") from None
    return tuple(agents)


class Targets:
    """All agents to ask now. A target file that breaks keeps what it said last, and is complained about once.

    Args:
        settings: `[poll]`; its `targets` were checked at load.
    """

    def __init__(self, settings: PollSettings) -> None:
        self._tls = settings.ca_file is not None
        self._fixed = tuple(parse_target(target, tls=self._tls) for target in settings.targets)
        self._patterns = settings.target_files
        self._files: dict[Path, tuple[Agent, ...]] = {}
        self._stamps: dict[Path, tuple[int, ...] | None] = {}
        self._broken: dict[Path, str] = {}
        self._clashes: set[Agent] = set()

    def read(self) -> tuple[Agent, ...]:
        """Look at the target files, read again what changed, and return every agent once, sorted by name.

        Blocks on the disk: call it from a thread. A file that has vanished keeps its agents until a restart or reload, as
        a file that is being replaced is gone for a moment; one that a pattern found and no longer finds drops them.
        """
        found = list(_expand(self._patterns))
        for path in found:
            self._look(path)
        for path in [known for known in self._files if known not in found]:
            del self._files[path]
            self._stamps.pop(path, None)
        return self._unique([*self._fixed, *(agent for path in found for agent in self._files.get(path, ()))])

    @property
    def broken(self) -> tuple[str, ...]:
        """One sentence per target file that cannot be used now."""
        return tuple(self._broken.values())

    def _look(self, path: Path) -> None:
        stamp = _stamp(path)
        if path in self._stamps and self._stamps[path] == stamp:
            return
        self._stamps[path] = stamp
        try:
            self._files[path] = read_target_file(path, tls=self._tls)
        except TargetError as error:
            if self._broken.get(path) != str(error):
                kept = len(self._files.get(path, ()))
                _log.error("target_file_broken kept_agents=%d error=%s", kept, error)
            self._broken[path] = str(error)
            return
        if self._broken.pop(path, None) is not None:
            _log.info("target_file_back file=%s agents=%d", path, len(self._files[path]))

    def _unique(self, agents: Sequence[Agent]) -> tuple[Agent, ...]:
        by_name: dict[str, Agent] = {}
        by_url: dict[str, Agent] = {}
        for agent in agents:
            kept = by_name.get(agent.name) or by_url.get(agent.url) or agent
            if kept is agent:
                by_name[agent.name] = by_url[agent.url] = agent
            elif kept != agent and agent not in self._clashes:
                # The same boards under two names would look like twice the run.
                self._clashes.add(agent)
                _log.error(
                    "target_twice kept=%s at=%s ignored=%s at=%s", kept.name, kept.url, agent.name, agent.url
                )
        return tuple(sorted(by_name.values(), key=lambda agent: agent.name))


def _expand(patterns: Iterable[Path]) -> Iterable[Path]:
    for pattern in patterns:
        if any(sign in pattern.name for sign in "*?["):
            yield from sorted(pattern.parent.glob(pattern.name))
        else:
            yield pattern


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
