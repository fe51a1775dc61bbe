"""The `watchtower status` command: asks the daemon, prints, and says with its exit status how things are. Decides nothing about runs."""

import os
import shutil
import sys
from typing import Annotated, Any

import typer

from watchtower.cli.places import DEFAULT_URL, CaFileOption, TokenFileOption, UrlOption
from watchtower.cli.status_ask import Daemon, NoAnswerError, NotFoundError
from watchtower.cli.status_words import Style, blindness, urgency, watcher_urgency

_BLIND = 3
_REDRAW_S = 2.0


def status(
    run: Annotated[
        str | None,
        typer.Argument(help="Show this run in full, by its id, its name, or the beginning of one."),
    ] = None,
    *,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same facts for programs.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Draw again every two seconds, until Ctrl-C.")
    ] = False,
) -> None:
    """Show every run and how it is, worst first; with RUN, that one in full.

    Exit status: 0 when every run is fine, 1 when one needs a look (slow, unknown, lingering, or bad and taken on by
    somebody), an agent cannot read its GPUs, or an incident is open about nodes or the watcher; 2 when a run is deadlocked,
    hung or crashed; 3 when the watcher cannot be asked or does not see, or knows no such RUN. `watchtower ack` says that you have taken an incident on.
    """
    try:
        place = Daemon.at(url, token_file, ca_file)
    except NoAnswerError as error:
        print(f"watchtower: {error}", file=sys.stderr)
        raise typer.Exit(_BLIND) from None
    if not watch:
        raise typer.Exit(_show(place, run, as_json=as_json))
    from watchtower.clock import SystemClock

    clock = SystemClock()
    try:
        while True:
            sys.stdout.write("\x1b[H\x1b[2J" if sys.stdout.isatty() else "")
            _show(place, run, as_json=as_json)
            sys.stdout.flush()
            clock.pause(_REDRAW_S)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _show(place: Daemon, wanted: str | None, *, as_json: bool) -> int:
    """Ask once and print.

    Returns:
        The exit status.
    """
    try:
        body, everything = place.get("/api/v1/status")
        if wanted is not None:
            return _show_run(place, wanted, everything, as_json=as_json)
    except (NoAnswerError, NotFoundError) as error:
        print(f"watchtower: {error}", file=sys.stderr)
        return _BLIND
    if as_json:
        sys.stdout.write(body.decode() + "\n")
    else:
        from watchtower.cli.status_table import table

        print("\n".join(table(everything, _style())))
    if blindness(everything) is not None:
        return _BLIND
    now = everything["watcher"]["now"]
    return max([watcher_urgency(everything), *(urgency(run, now) for run in everything["runs"])])


def _show_run(place: Daemon, wanted: str, everything: dict[str, Any], *, as_json: bool) -> int:
    from urllib.parse import quote

    run_id = _chosen(wanted, everything["runs"])
    now = everything["watcher"]["now"]
    body, answer = place.get(f"/api/v1/runs/{quote(run_id, safe='')}")
    if as_json:
        sys.stdout.write(body.decode() + "\n")
    else:
        from watchtower.cli.status_detail import detail

        _, changes = place.get(f"/api/v1/runs/{quote(run_id, safe='')}/transitions?limit=5")
        print("\n".join(detail(answer, changes["transitions"], now, _style())))
    blind = blindness(everything)
    if blind is not None:
        print(f"watchtower: the watcher is not well: {blind}", file=sys.stderr)
        return _BLIND
    return urgency(answer["run"] | {"incident": answer["incident"]}, now)


def _chosen(wanted: str, runs: list[dict[str, Any]]) -> str:
    """The id of the run that a person means.

    Raises:
        NotFoundError: it could be several; names them.
    """
    for fits in (
        [run for run in runs if wanted == run["run_id"]],
        [run for run in runs if wanted == run["run_name"]],
        [
            run
            for run in runs
            if run["run_id"].startswith(wanted) or (run["run_name"] or "").startswith(wanted)
        ],
    ):
        if len(fits) == 1:
            return str(fits[0]["run_id"])
        if fits:
            raise NotFoundError(
                f"{wanted!r} could be any of {', '.join(sorted(run['run_id'] for run in fits))}"
            )
    return wanted  # perhaps one that is no longer watched


def _style() -> Style:
    terminal = sys.stdout.isatty()
    encoding = (sys.stdout.encoding or "ascii").lower()
    columns = shutil.get_terminal_size((0, 0)).columns
    return Style(
        colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        unicode=encoding.startswith("utf"),
        width=columns or None,
    )
