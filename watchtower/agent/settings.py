"""What an agent can be told, and whether it fits together. Opens nothing but the settings file, and asks nobody."""

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from watchtower.agent.node.side import NodeSettings
from watchtower.wire import DEFAULT_AGENT_PORT

_NODE = re.compile(r"[A-Za-z0-9._-]{1,253}")


class SettingsError(Exception):
    """The settings cannot be used; one line per mistake, which names the file or the key and what to do."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent's settings, with the defaults of a careful start: this machine only, real NVML, everybody's processes.

    Args:
        listen: host:port, `[address]:port` for IPv6.
        node: this node's name in the fleet; None: its host name.
        token_file: the bearer token alone on one line.
        tls_cert, tls_key: PEM; both or neither.
        client_ca: whoever connects must show a certificate signed by it.
        insecure: listen beyond loopback without a token.
        user: watch only the processes of the user who runs the agent, without root.
        sampler_command: program and arguments that speak the pipe of agent/nvml/protocol.py; empty: read NVML.
        log_globs: where trainers write their logs, with {run_id} and {rank}.
        proc_root: where the processes of this machine are listed.
        job_directory: where jobs leave their files.
        kmsg_path: the kernel's log.
        interval_s: between two sweeps.
        sweep_deadline_s: after which NVML counts as unresponsive.
        end_after_s: after which a sampling process inside a call is ended.
        release_min: how long SIGUSR1 lets go of the GPUs.
        history_s: how long samples are kept.
        max_connections: at the same time.
    """

    listen: str = f"127.0.0.1:{DEFAULT_AGENT_PORT}"
    node: str | None = None
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    insecure: bool = False
    user: bool = False
    sampler_command: tuple[str, ...] = ()
    log_globs: tuple[str, ...] = ()
    proc_root: Path = Path("/proc")
    job_directory: str | None = None
    kmsg_path: str = "/dev/kmsg"
    interval_s: float = 1.0
    sweep_deadline_s: float = 5.0
    end_after_s: float = 60.0
    release_min: float = 15.0
    history_s: float = 600.0
    max_connections: int = 32

    def address(self) -> tuple[str, int]:
        """Host and port to listen on.

        Raises:
            SettingsError: `listen` is not one.
        """
        found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\[\]\s]+)):(\d{1,5})", self.listen)
        if found is None or int(found[3]) > 65_535:
            raise SettingsError(
                f"listen = {self.listen!r} is not host:port, such as 0.0.0.0:{DEFAULT_AGENT_PORT}"
            )
        return found[1] or found[2], int(found[3])

    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        host = self.address()[0]
        try:
            return ipaddress.ip_address(host.partition("%")[0]).is_loopback
        except ValueError:
            return host == "localhost"

    def check(self) -> None:
        """Whether the settings fit together.

        Raises:
            SettingsError: with all that does not.
        """
        found = list(self._mistakes())
        if found:
            raise SettingsError("\n".join(found))

    def _mistakes(self) -> Iterator[str]:
        yield from self._network_mistakes()
        if self.node is not None and not _NODE.fullmatch(self.node):
            yield f"node = {self.node!r} cannot be a node's name: letters, digits and . _ - only"
        if not self.proc_root.is_dir():
            yield f"proc_root = {self.proc_root} is not a directory; processes are listed in /proc"
        for key in ("interval_s", "sweep_deadline_s", "end_after_s", "history_s", "max_connections"):
            if not 0 < getattr(self, key) < 1e6:
                yield f"{key} = {getattr(self, key)} must be more than 0"
        if not 0 <= self.release_min <= 24 * 60:
            yield f"release_min = {self.release_min} must lie between 0 and 1440 minutes"
        if self.sweep_deadline_s >= self.end_after_s:
            yield "end_after_s must be longer than sweep_deadline_s: first say, then act"

    def _network_mistakes(self) -> Iterator[str]:
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "tls_cert and tls_key go together: give both or neither"
        if self.client_ca is not None and self.tls_cert is None:
            yield "client_ca needs tls_cert and tls_key: client certificates exist only in TLS"
        try:
            local = self.is_local()
        except SettingsError as error:
            yield str(error)
            return
        if not (local or self.token_file or self.insecure):
            yield (
                f"listening on {self.listen} without a token shows every run of this node to the network: give"
                " token_file, listen on 127.0.0.1, or say insecure if the network is yours alone"
            )

    def node_settings(self) -> NodeSettings:
        """The part that the node side reads."""
        more = {} if self.job_directory is None else {"job_directory": self.job_directory}
        return NodeSettings(
            proc_root=self.proc_root,
            user_only=self.user,
            log_globs=self.log_globs,
            kmsg_path=self.kmsg_path,
            **more,
        )


def load(file: Path | None, given: Mapping[str, object]) -> AgentSettings:
    """Settings from a TOML file, with what the command line says on top.

    Args:
        file: None: only the command line.
        given: key -> value; None values are left out.

    Raises:
        SettingsError: one sentence for each mistake, naming the file and the key.
    """
    said: dict[str, Any] = {} if file is None else _read(file)
    said |= {key: value for key, value in given.items() if value is not None}
    mistakes: list[str] = []
    values: dict[str, Any] = {}
    hints = get_type_hints(AgentSettings)
    for key, value in said.items():
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1)
            mistakes.append(f"unknown key {key}{f'; did you mean {near[0]}?' if near else ''}")
            continue
        try:
            values[key] = msgspec.convert(value, hints[key], dec_hook=_path)
        except msgspec.ValidationError as error:
            what = str(error).replace("Expected", "must be").replace(" | null", "").replace("`", "")
            mistakes.append(f"{key}: {what}")
    # What is wrong keeps its default here, which complains of nothing, so that the rest can be looked at as well.
    settings = AgentSettings(**values)
    try:
        settings.check()
    except SettingsError as error:
        mistakes += str(error).split("\n")
    if mistakes:
        raise SettingsError(
            "\n".join(f"{file}: {mistake}" if file is not None else mistake for mistake in mistakes)
        )
    return settings


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not TOML: {error}") from None


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise NotImplementedError
