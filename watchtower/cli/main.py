"""The `watchtower` command: names its subcommands and imports each only when it is called. Does nothing itself."""

import importlib
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from watchtower import __version__

# Name -> module and function, in the order of --help. A module is imported when its command is called or asked for help:
# `status` must not pay for a web server, and a broken part must not take the others with it.
COMMANDS: dict[str, tuple[str, str]] = {
    "status": (
        "watchtower.cli.status",
        "Show every run and how it is; exit status says whether any needs a look.",
    ),
    "ack": ("watchtower.cli.ack", "Say that you have taken an incident on."),
    "serve": ("watchtower.cli.serve", "Run the watcher: poll the agents, judge the runs, tell people."),
    "agent": (
        "watchtower.cli.agent",
        "Run on a GPU node: read its GPUs and training processes, answer the watcher.",
    ),
    "check-config": ("watchtower.cli.check_config", "Check a configuration and every file it names."),
    "init": ("watchtower.cli.init", "Make a token, a private CA and certificates for a small site."),
    "replay": (
        "watchtower.cli.replay",
        "Judge a recording in virtual time: what would have been paged, and when.",
    ),
}


class _LazyGroup(TyperGroup):
    """Finds commands in COMMANDS; lists them without importing any."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module_name, _ = COMMANDS[cmd_name]
        module = importlib.import_module(module_name)
        single = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
        single.command(cmd_name)(getattr(module, module_name.rpartition(".")[2]))
        return typer.main.get_command(single)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])


app = typer.Typer(
    cls=_LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"watchtower {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Watches distributed GPU training runs from outside, and pages when one deadlocks, hangs, crashes or crawls.

    An agent on each GPU node reads board power and utilization once a second and finds the training processes. The watcher,
    on a machine of its own, asks all agents every few seconds, judges each run and tells people through Slack and PagerDuty.

    To begin: `watchtower agent` on each node, `watchtower serve --config watchtower.toml` on the watching machine, and
    `watchtower status` there to see how things are.
    """


def main() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output (head, less) has enough.
        sys.stderr.close()
        sys.exit(0)
