"""Lays out one run in full, rank by rank. Chooses few words and asks nobody."""

from typing import Any

from watchtower.cli import status_words as words
from watchtower.cli.status_words import Style

_MARK = "<"


def detail(answer: dict[str, Any], changes: list[dict[str, Any]], now: float, style: Style) -> list[str]:
    """Write one run.

    Args:
        answer: what /api/v1/runs/<id> said.
        changes: its newest changes of state, newest first.
        now: the watcher's clock.
        style: what the terminal can show.
    """
    run = answer["run"] | {"incident": answer["incident"]}
    lines = [
        style.paint(words.name(run), "1") + (f", of {words.clean(run['user'])}" if run.get("user") else ""),
        f"{style.state(run['state'], run['state'].upper())} since {words.since(run, now)}: {words.clean(run['reason'])}",
        "",
    ]
    lines += [f"  {key:<12} {value}" for key, value in _facts(run, now, style)]
    for evidence in run.get("evidence") or ():
        lines.append(f"  {'evidence':<12} {words.clean(evidence['name'])}: {words.clean(evidence['value'])}")
    lines += ["", *_ranks(run, now, style)]
    if changes:
        lines += ["", "Lately"]
        lines += [
            f"  {words.moment(change['t'], now)}  {words.clean(change['state'])}: {words.clean(change['reason'])}"
            for change in changes
        ]
    return lines


def _facts(run: dict[str, Any], now: float, style: Style) -> list[tuple[str, str]]:
    step_at, step_time = run.get("step_at"), run.get("step_time_s")
    usual = "" if step_time is None else f"; usually one in {step_time:.3g} s"
    newest = "" if step_at is None else f", the newest {words.span(now - step_at)} ago{usual}"
    floor = run.get("throughput_floor")
    facts = [
        ("step", words.steps(run, style) + newest),
        ("pace", words.pace(run, style) + (f" (floor {floor['value']:g} {floor['unit']})" if floor else "")),
        ("phase", words.clean(run.get("phase") or style.none)),
        ("power", words.power(run, style, bars=60) + " of working power"),
        ("checkpoint", words.checkpoint(run, now, style)),
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
        timeout_s = run.get("collective_timeout_s")
        if timeout_s is not None:
            left = run["since"] + timeout_s - now
            facts.append(("NCCL", f"strikes in {words.span(left)}" if left > 0 else "its timeout is over"))
    if run.get("incident") or run["state"] in words.BAD:
        facts.append(("people", words.told(run, now)))
    if not run.get("progress_source"):
        facts.append(("note", "no step feed: judged by power and processes alone"))
    return facts


def _ranks(run: dict[str, Any], now: float, style: Style) -> list[str]:
    suspected = {(suspect.get("rank"), suspect["node"]) for suspect in run.get("suspects") or ()}
    heads = ("RANK", "NODE", "GPU", "PID", "ACTIVITY", "FOR", "POWER", "WORKING", "UTIL", "TEMP", "CLOCK", "")
    rows = [heads, *(_rank(rank, now, style, suspected) for rank in run["ranks"])]
    widths = [max(len(row[n]) for row in rows) for n in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [
        style.paint(lines[0], "1"),
        *(style.paint(line, "1;31") if _MARK in line else line for line in lines[1:]),
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
