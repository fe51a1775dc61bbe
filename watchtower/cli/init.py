"""The `watchtower init` command: a token, a private CA and certificates for a small site. Overwrites nothing and contacts nobody."""

import os
import re
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from watchtower.cli.places import DEFAULT_CONFIG

if TYPE_CHECKING:
    from watchtower.cli.init_certificates import Authority

_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39}")
_TOKEN_BYTES = 32


def init(
    directory: Annotated[
        Path | None, typer.Option(help="Needed: where to put the files; made if it is missing.")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            help="Needed: a GPU node, by the host name or address that the watcher asks; repeat for each."
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificates are valid.")] = 825,
) -> None:
    """Make what agents and watcher need to trust each other.

    Writes a bearer token, a private CA, one server certificate per node and one client certificate for the watcher, each
    readable by its owner only. A file that exists is kept as it is: with the CA there, more nodes can be added later.

    Exit status: 0 when done, 2 when a name is wrong or a file cannot be written.
    """
    from watchtower.cli.init_certificates import Authority, CertificateError

    if directory is None or not node:
        missing = [] if directory is not None else ["--directory, where to put the files"]
        missing += [] if node else ["--node for each GPU node (its host name or address)"]
        _refuse(f"give {' and '.join(missing)}")
    if directory.exists() and not directory.is_dir():
        _refuse(f"--directory {directory} is a file; give the name of a directory")
    strange = [one for one in node if not _NODE.fullmatch(one)]
    if strange:
        _refuse(f"--node {strange[0]!r} is not a host name or an address")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        made, kept = _write_all(directory, node, Authority.of(directory, days=days, keep=_keep))
    except CertificateError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"--directory {directory} cannot be written to: {error.strerror}")
    for path in kept:
        print(f"kept  {path}")
    for path in made:
        print(f"made  {path}")
    print(_next_steps(directory.absolute(), _nodes(directory)))


def _write_all(directory: Path, nodes: list[str], authority: "Authority") -> tuple[list[Path], list[Path]]:
    made, kept = list(authority.made), list(authority.kept)
    token = directory / "token"
    secret = f"{secrets.token_urlsafe(_TOKEN_BYTES)}\n"
    (made if _keep(token, secret.encode) else kept).append(token)
    for stem, host in [*((_stem(node), node) for node in nodes), ("watcher", None)]:
        certificate, key = directory / f"{stem}.crt", directory / f"{stem}.key"
        if certificate.exists() and key.exists():
            kept += [certificate, key]
            continue
        if certificate.exists() or key.exists():
            raise OSError(
                0, f"only one of {certificate.name} and {key.name} is there; remove it and run this again"
            )
        certificate_pem, key_pem = authority.issue(host)
        _keep(key, lambda pem=key_pem: pem)  # type: ignore[misc]
        _keep(certificate, lambda pem=certificate_pem: pem)  # type: ignore[misc]
        made += [certificate, key]
    return made, kept


def _keep(path: Path, content: Callable[[], bytes]) -> bool:
    """Write a new file for its owner only.

    Returns:
        False when there is one already, which stays as it is.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(fd, "wb") as file:
        file.write(content())
        file.flush()
        os.fsync(file.fileno())
    return True


def _refuse(sentence: str) -> NoReturn:
    print(f"watchtower init: {sentence}", file=sys.stderr)
    raise typer.Exit(2)


def _nodes(directory: Path) -> list[str]:
    """Every node that has its files there, whichever call made them, in order of name."""
    stems = [path.stem for path in directory.glob("node-*.crt") if path.with_suffix(".key").exists()]
    return sorted(stem.removeprefix("node-").replace("_", ":") for stem in stems)


def _next_steps(directory: Path, nodes: list[str]) -> str:
    agents = "\n".join(_AGENT.format(node=node, stem=_stem(node), site=_SITE) for node in nodes)
    targets = "".join(f'\n       "{f"[{node}]" if ":" in node else node}:9477",' for node in nodes)
    where = (
        f"the files are in {_SITE}/ already"
        if directory == _SITE
        else f"copy token, ca.crt, watcher.crt and watcher.key from {directory}/ to {_SITE}/"
    )
    return _NEXT.format(directory=directory, site=_SITE, agents=agents, targets=targets, where=where)


def _stem(node: str) -> str:
    return f"node-{node.replace(':', '_')}"


_SITE = DEFAULT_CONFIG.parent
_AGENT = """\
   {node}: token, ca.crt, {stem}.crt and {stem}.key; then, as root,
     watchtower agent --listen 0.0.0.0:9477 --token-file {site}/token --client-ca {site}/ca.crt \\
       --tls-cert {site}/{stem}.crt --tls-key {site}/{stem}.key"""
_NEXT = """
Next:
1. On each node, copy its files from {directory}/ to {site}/, readable by root only:
{agents}
   (As a service: systemd/watchtower-agent.service, with the same settings in {site}/agent.toml.)
2. On the watching machine, {where}, and put into {site}/watchtower.toml
     [poll]
     targets = [{targets}
     ]
     token_file = "token"
     ca_file = "ca.crt"
     cert_file = "watcher.crt"
     key_file = "watcher.key"
   and who is to be told (deploy/watchtower.example.toml shows it all), then
     watchtower check-config {site}/watchtower.toml
     watchtower serve --config {site}/watchtower.toml
3. Keep {directory}/ca.key off the nodes: whoever has it can pretend to be any of them."""
