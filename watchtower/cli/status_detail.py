"""Lays out one run in full, rank by rank. Chooses few words and asks nobody."""

from collections.abc import Sequence
from typing import Any

from watchtower.cli import status_words as words
from watchtower.cli.status_columns import GAP, fit, wrap
from watchtower.cli.status_words import Style

_MARK = "<"
_INDENT = 15
_HEADS = ("RANK", "NODE", "GPU", "PID", "ACTIVITY", "FOR", "POWER", "WORKING", "UTIL", "TEMP", "CLOCK", "")
# How early each is given up in a narrow terminal; 0: never. Of a suspect one needs to know where it runs and what it does.
_SACRIFICES = (0, 0, 0, 2, 0, 3, 1, 6, 4, 7, 8, 0)


def detail(answer: dict[str, Any], changes: list[dict[str, Any]], now: float, style: Style) -> list[str]:
    """Write one run.

    Args:
        answer: what /api/v1/runs/<id> said.
        changes: its newest changes of state, newest first.
        now: the watcher's clock.
        style: what the terminal can show.
    """
    run = answer["run"] | {"incident": answer["incident"]}
    name = words.name(run) + (f", of {words.clean(run['user'])}" if run.get("user") else "")
    state = f"{run['state'].upper()} since {words.since(run, now)}: {words.clean(run['reason'])}"
    first, *more = wrap(state, style.width, "", "  ")
    lines = [style.paint(name, "1"), style.state(run["state"], first), *more, ""]
    facts = _facts(run, now, style, answer.get("page") or ())
    facts += [
        ("evidence", words.clean(f"{evidence['name']}: {evidence['value']}"))
        for evidence in run.get("evidence") or ()
    ]
    for key, value in facts:
        lines += wrap(value, style.width, f"  {key:<12} ", " " * _INDENT)
    lines += ["", *_ranks(run, now, style)]
    if changes:
        lines += ["", "Lately"]
    for change in changes:
        text = words.clean(f"{change['state']}: {change['reason']}")
        lines += wrap(text, style.width, f"  {words.moment(change['t'], now)}  ", " " * 10)
    return lines


def _facts(
    run: dict[str, Any], now: float, style: Style, page: Sequence[dict[str, str]]
) -> list[tuple[str, str]]:
    said = {line["label"]: words.clean(line["text"]) for line in page}  # in a page's words, where it has some
    step_at, step_time = run.get("step_at"), run.get("step_time_s")
    usual = "" if step_time is None else f"; usually one in {step_time:.3g} s"
    newest = "" if step_at is None else f", the newest {words.span(now - step_at)} ago{usual}"
    floor = run.get("throughput_floor")
    facts = [
        ("step", words.steps(run, style) + newest),
        ("pace", words.pace(run, style) + (f" (floor {floor['value']:g} {floor['unit']})" if floor else "")),
        ("phase", words.clean(run.get("phase") or style.none)),
        ("power", _power(run, style)),
        ("checkpoint", said.pop("checkpoint", None) or words.checkpoint(run, now, style)),
        ("ranks", words.ranks(run, style)),
        (
            "hardware",
            words.clean(f"{run['gpus']} x {run.get('gpu_model') or 'GPU'} on {', '.join(run['nodes'])}"),
        ),
    ]
    if run.get("nodes_unseen"):
        facts.append(("not seen", words.clean(", ".join(run["nodes_unseen"]))))
    if run.get("restarts") or run.get("attempt"):
        facts.append(("restarts", f"{run.get('restarts') or 0} seen, attempt {run.get('attempt') or 0}"))
    if run["state"] in words.BAD:
        facts.append(("suspects", words.suspects(run, at_most=16)))
    facts += said.items()
    if run.get("incident") or run["state"] in words.BAD:
        facts.append(("people", words.told(run, now)))
    if not run.get("progress_source"):
        facts.append(("note", "no step feed: judged by power and processes alone"))
    return facts


def _power(run: dict[str, Any], style: Style) -> str:
    of_what = " of working power"
    room = 60 if style.width is None else style.width - _INDENT - len(" 100 % ") - len(of_what)
    return words.power(run, style, bars=min(60, max(1, room))) + of_what


def _ranks(run: dict[str, Any], now: float, style: Style) -> list[str]:
    suspected = {(suspect.get("rank"), suspect["node"]) for suspect in run.get("suspects") or ()}
    rows = [_HEADS, *(_rank(rank, now, style, suspected) for rank in run["ranks"])]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEADS))]
    kept = fit(widths, _SACRIFICES, style.width)
    lines = [GAP.join(row[n].ljust(widths[n]) for n in kept).rstrip() for row in rows]
    left_out = [head.lower() for n, head in enumerate(_HEADS) if n not in kept]
    return [
        style.paint(lines[0], "1"),
        *(style.paint(line, "1;31") if _MARK in line else line for line in lines[1:]),
        *(
            wrap(f"(no room for {', '.join(left_out)}; --json has all)", style.width, "", " ")
            if left_out
            else ()
        ),
    ]


def _rank(
    rank: dict[str, Any], now: float, style: Style, suspected: set[tuple[int | None, str]]
) -> tuple[str, ...]:
    return (
        _number(rank["rank"], "", style),
        words.clean(rank["node"]),
        _number(rank["gpu_index"], "", style),
        _number(rank["pid"], "", style),
        words.clean(rank["activity"]),
        style.none if rank["since"] is None else words.span(now - rank["since"]),
        _number(rank["board_power_w"], " W", style),
        _number(rank["working_power_w"], " W", style),
        _number(rank["utilization_pct"], " %", style),
        _number(rank["temperature_c"], " °C" if style.unicode else " C", style),
        _number(rank["sm_clock_mhz"], " MHz", style),
        f"{_MARK} suspect" if (rank["rank"], rank["node"]) in suspected else "",
    )


def _number(value: float | None, unit: str, style: Style) -> str:
    return style.none if value is None else f"{value:.0f}{unit}"
