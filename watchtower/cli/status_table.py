"""Lays out all runs as a table that fits the terminal, worst first. Chooses no word and asks nobody."""

from collections.abc import Callable
from typing import Any

from watchtower.cli import status_words as words
from watchtower.cli.status_columns import GAP, fit, total, wrap
from watchtower.cli.status_words import Style

_STATE_ORDER = (*words.BAD, *words.LOOK, "starting", "progressing", "stopped", "completed")
_MAX_NAME = 40
_SHORT_NAME = 16
_MAX_AGENTS = 5


class _Column:
    """One column: its head, what a run shows there, and how early it is given up when the terminal is narrow."""

    def __init__(
        self, head: str, cell: Callable[[dict[str, Any], float, Style], str], sacrifice: int = 0
    ) -> None:
        self.head = head
        self.cell = cell
        self.sacrifice = sacrifice  # 0: never


_COLUMNS = (
    _Column("RUN", lambda run, now, style: _clip(words.name(run), _MAX_NAME, style)),
    _Column("OWNER", lambda run, now, style: words.clean(run.get("user") or style.none), 5),
    _Column("STATE", lambda run, now, style: _state(run)),
    _Column("SINCE", lambda run, now, style: words.since(run, now), 1),
    _Column("STEP", lambda run, now, style: words.steps(run, style)),
    _Column("PACE", lambda run, now, style: words.pace(run, style), 4),
    _Column("POWER", lambda run, now, style: words.power(run, style), 3),
    _Column("CHECKPOINT", words.checkpoint, 6),
    _Column("RANKS", lambda run, now, style: words.ranks(run, style), 2),
)


def table(status: dict[str, Any], style: Style) -> list[str]:
    """Write the whole answer.

    Args:
        status: what /api/v1/status said.
        style: what the terminal can show.

    Returns:
        Lines: the runs, what there is to say about those that need it, and last how the watcher itself is.
    """
    now = status["watcher"]["now"]
    runs = sorted(status["runs"], key=lambda run: (_order(run), -run["since"]))
    lines = _rows(runs, now, style) if runs else ["No training runs are seen."]
    return [*lines, "", *_watcher(status, style)]


def _rows(runs: list[dict[str, Any]], now: float, style: Style) -> list[str]:
    cells = [[column.cell(run, now, style) for column in _COLUMNS] for run in runs]
    widths = [max(len(column.head), *(len(row[n]) for row in cells)) for n, column in enumerate(_COLUMNS)]
    # A name is still known by its beginning; it gives way before a whole column does.
    short = [min(widths[0], _SHORT_NAME), *widths[1:]]
    kept = fit(short, [column.sacrifice for column in _COLUMNS], style.width)
    left_out = [column.head.lower() for n, column in enumerate(_COLUMNS) if n not in kept]
    if style.width is not None:
        # What cannot be given up shrinks in the end: the run's name.
        widths[0] = max(8, widths[0] - max(0, total(widths, kept) - style.width))
    lines = [style.paint(_join([_COLUMNS[n].head for n in kept], [widths[n] for n in kept], style), "1")]
    for run, row in zip(runs, cells, strict=True):
        texts = [_clip(row[n], widths[n], style) for n in kept]
        padded = [text.ljust(widths[n]) for n, text in zip(kept, texts, strict=True)]
        padded = [
            style.state(run["state"], text) if _COLUMNS[n].head == "STATE" else text
            for n, text in zip(kept, padded, strict=True)
        ]
        lines.append(GAP.join(padded).rstrip())
        if words.needs_words(run):
            lines += _explained(run, now, style)
    if left_out:
        missing = f"(no room for {', '.join(left_out)}; `watchtower status RUN` shows all)"
        lines += wrap(missing, style.width, "", " ")
    return lines


def _explained(run: dict[str, Any], now: float, style: Style) -> list[str]:
    sentences = [words.clean(run["reason"])]
    if run["state"] in words.BAD:
        sentences.append(words.suspects(run))
    sentences.append(words.told(run, now))
    mark = "└ " if style.unicode else "- "
    lines = []
    for sentence in sentences:
        lines += wrap(sentence, style.width, f"    {mark}", "      ")
    return lines


def _watcher(status: dict[str, Any], style: Style) -> list[str]:
    watcher = status["watcher"]
    now = watcher["now"]
    fresh = f"{watcher['agents_fresh']} of {words.count(watcher['agents'], 'agent')} fresh"
    blind = words.blindness(status)
    unread = words.unread(status)
    lines = []
    for incident in status.get("incidents") or ():
        lines += wrap(words.other_incident(incident, now), style.width, "", "  ")
    lines += _some([words.unreadable(agent) for agent in unread], style)
    lines += _some([words.unanswered(agent, now) for agent in status["agents"] if not agent["fresh"]], style)
    if watcher["outbox_oldest_age_s"] > 60:
        waited = words.span(watcher["outbox_oldest_age_s"])
        lines.append(style.paint(f"a message has waited for {waited}: no provider takes it", "1;31"))
    for sink, waiting in watcher.get("stranded", {}).items():
        wait = f"{words.count(waiting, 'message')} wait{'s' if waiting == 1 else ''}"
        lines.append(f"{wait} for {words.clean(sink)}, which is no longer in the settings")
    if blind is not None:
        lines += wrap(f"THE WATCHER IS NOT WELL: {blind}; {fresh}", style.width, "", "  ")
        return [*lines[:-1], style.paint(lines[-1], "1;31")]
    ago = words.span(now - watcher["last_round_at"])
    told = "" if watcher["sinks"] else "; nobody would be told (no sinks)"
    well = f"{len(unread)} of them cannot read GPUs" if unread else "the watcher is well"
    return [*lines, *wrap(f"{fresh}; {well}, last round {ago} ago{told}", style.width, "", "  ")]


def _some(sentences: list[str], style: Style) -> list[str]:
    """One line each, until there are too many of a kind."""
    lines = [line for sentence in sentences[:_MAX_AGENTS] for line in wrap(sentence, style.width, "", "  ")]
    more = len(sentences) - _MAX_AGENTS
    return [*lines, f"  and {more} more like that"] if more > 0 else lines


def _state(run: dict[str, Any]) -> str:
    state = words.clean(run["state"])
    return state.upper() if state in words.BAD else state


def _order(run: dict[str, Any]) -> int:
    return _STATE_ORDER.index(run["state"]) if run["state"] in _STATE_ORDER else 0


def _join(texts: list[str], widths: list[int], style: Style) -> str:
    return GAP.join(
        _clip(text, width, style).ljust(width) for text, width in zip(texts, widths, strict=True)
    ).rstrip()


def _clip(text: str, width: int, style: Style) -> str:
    if len(text) <= width:
        return text
    end = "…" if style.unicode else "~"
    return text[: max(0, width - 1)] + end
