"""The `watchtower agent` command: options to settings, and an exit status. Runs nothing itself."""

import logging
import shlex
from pathlib import Path
from typing import Annotated, NoReturn

import typer


def agent(
    *,
    listen: Annotated[
        str | None,
        typer.Option(help="Address to answer on, host:port; 127.0.0.1:9477 unless told otherwise."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="This node's name in the fleet; its host name by default.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token that the watcher must show.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), to speak TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="Take only clients with a certificate signed by this CA (PEM).")
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Listen beyond this machine without a token."),
    ] = None,
    user: Annotated[
        bool | None,
        typer.Option(
            "--user",
            help="Without root: watch your own processes only, and say what cannot be seen.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with any of these settings; the command line wins.")
    ] = None,
    log_glob: Annotated[
        list[str] | None,
        typer.Option(
            help="Where trainers write their logs, with {run_id} and {rank} where they stand in the path; may be repeated."
        ),
    ] = None,
    job_directory: Annotated[
        str | None, typer.Option(help="Where jobs write their own files; /run/watchtower by default.")
    ] = None,
    sampler_command: Annotated[
        str | None,
        typer.Option(
            help="A program that reads the GPUs in our place (it speaks the pipe of watchtower/agent/nvml/protocol.py)."
        ),
    ] = None,
    proc_root: Annotated[
        Path | None, typer.Option(help="Where the processes are listed, if not in /proc.")
    ] = None,
    kmsg_path: Annotated[
        str | None, typer.Option(help="The kernel's log, if not /dev/kmsg.", hidden=True)
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run on a GPU node: read its GPUs and training processes once a second and answer the watcher.

    Needs no root to start; docs/agent.md says what each privilege lets it see. SIGUSR1 lets go of the GPUs for a while, so
    that a driver can be reloaded, and SIGUSR2 takes them up again. Answers /v1/snapshot, /metrics and /healthz.

    Exit status: 0 after SIGTERM, 1 when the address cannot be listened on, 2 when the settings cannot be used.
    """
    from watchtower.agent.main import run
    from watchtower.agent.settings import SettingsError, load
    from watchtower.clock import SystemClock

    given = {
        "listen": listen,
        "node": node,
        "token_file": token_file,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "client_ca": client_ca,
        "insecure": insecure,
        "user": user,
        "log_globs": log_glob or None,
        "job_directory": job_directory,
        "sampler_command": None if sampler_command is None else _split(sampler_command),
        "proc_root": proc_root,
        "kmsg_path": kmsg_path,
    }
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        _refuse(f"--log-level {log_level} is not debug, info, warning or error")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        settings = load(config, given)
    except SettingsError as error:
        _refuse(str(error))
    raise typer.Exit(run(settings, SystemClock()))


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        _refuse(f"--sampler-command cannot be understood: {error}")


def _refuse(sentence: str) -> NoReturn:
    for line in sentence.split("\n"):
        typer.echo(f"watchtower agent: {line}", err=True)
    raise typer.Exit(2)
