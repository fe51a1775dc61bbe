"""Turns what the daemon says into words for a tired person: times, pace, power, ranks, suspects. Prints nothing, asks nobody."""

import time
from typing import Any

BAD = ("deadlocked", "hung", "crashed")
LOOK = ("slow", "unknown", "lingering")
_DAY_S = 86400.0
_BARS = "▁▂▃▄▅▆▇█"
# A board at its working power fills the bar; a little above it is still that.
_FULL_SHARE = 1.05
_COLOURS = {
    "progressing": "32",
    "starting": "36",
    "completed": "36",
    "stopped": "2",
    "slow": "33",
    "lingering": "33",
    "unknown": "35",
}
_BAD_COLOUR = "1;31"


class Style:
    """What the terminal can show."""

    def __init__(self, *, colour: bool, unicode: bool, width: int | None) -> None:
        self.colour = colour
        self.unicode = unicode
        self.width = width  # None: as wide as needed

    def paint(self, text: str, code: str) -> str:
        """Colour a text, where colours are wanted."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    def state(self, state: str, text: str) -> str:
        """Colour a text by a run's state."""
        return self.paint(text, _BAD_COLOUR if state in BAD else _COLOURS.get(state, ""))

    @property
    def none(self) -> str:
        """What stands for "not known"."""
        return "\N{EN DASH}" if self.unicode else "-"


def clean(text: Any) -> str:
    """A text without control characters: names come from other people's jobs, and a terminal obeys escapes."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(text))


def span(seconds: float) -> str:
    """A duration, as precise as it matters."""
    seconds = max(0.0, seconds)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / _DAY_S:.1f} d"


def moment(at: float, now: float) -> str:
    """A point in time in UTC, as pages have it, with the date when it is not of today."""
    return time.strftime("%H:%MZ" if abs(now - at) < 20 * 3600 else "%b %d %H:%MZ", time.gmtime(at))


def count(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def since(run: dict[str, Any], now: float) -> str:
    """When the state began, and how long that is."""
    return f"{moment(run['since'], now)} ({span(now - run['since'])})"


def name(run: dict[str, Any]) -> str:
    """The run's id, and its name where it has another."""
    named = run.get("run_name")
    return clean(run["run_id"] if not named or named == run["run_id"] else f"{run['run_id']} {named}")


def steps(run: dict[str, Any], style: Style) -> str:
    """How far it is."""
    step, total = run.get("step"), run.get("total_steps")
    if step is None:
        return style.none
    return f"{step}/{total}" if total else f"{step}"


def pace(run: dict[str, Any], style: Style) -> str:
    """How fast it goes: throughput where the trainer says it, else the time of a step."""
    throughput = run.get("throughput")
    if throughput:
        value = throughput["value"]
        number = (
            f"{value / 1000:.1f}k" if value >= 10_000 else f"{value:.3g}" if value < 100 else f"{value:.0f}"
        )
        per_gpu = " per GPU" if throughput.get("scope") == "gpu" else ""
        return clean(f"{number} {throughput['unit']}{per_gpu}")
    step_time = run.get("step_time_s")
    return style.none if step_time is None else f"{step_time:.3g} s/step"


def power(run: dict[str, Any], style: Style, bars: int = 12) -> str:
    """Power as a share of the ranks' own working power, with its course over the last minutes."""
    share = run.get("power_share")
    text = style.none if share is None else f"{share * 100:.0f} %"
    history = list((run.get("power_history") or ())[-bars:])
    if not style.unicode or not any(value is not None for value in history):
        return text
    return f"{text:>5} {''.join(_bar(value) for value in history)}"


def _bar(share: float | None) -> str:
    if share is None:
        return " "
    level = int(share / _FULL_SHARE * len(_BARS))
    return _BARS[min(max(level, 0), len(_BARS) - 1)]


def checkpoint(run: dict[str, Any], now: float, style: Style) -> str:
    """The age of the newest checkpoint, and its step: what a kill would cost."""
    at, step = run.get("last_checkpoint_at"), run.get("last_checkpoint_step")
    if at is None:
        return style.none if step is None else f"step {step}"
    return f"{span(now - at)} ago" + ("" if step is None else f" (step {step})")


def ranks(run: dict[str, Any], style: Style) -> str:
    """Ranks by what they do, most first; how many are missing where some are."""
    counts = {activity: count for activity, count in (run.get("activity") or {}).items() if count}
    if not counts:
        return style.none
    text = ", ".join(
        f"{n} {clean(a)}" for a, n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    )
    known, wanted = sum(counts.values()), run.get("world_size")
    return f"{text} of {wanted}" if wanted and known != wanted else text


def suspects(run: dict[str, Any], at_most: int = 3) -> str:
    """Who stands out, and why."""
    found = run.get("suspects") or ()
    if not found:
        return "no culprit visible yet"
    texts = []
    for suspect in found[:at_most]:
        who = "" if suspect.get("rank") is None else f"rank {suspect['rank']} on "
        gpu = "" if suspect.get("gpu_index") is None else f" GPU {suspect['gpu_index']}"
        texts.append(clean(f"{who}{suspect['node']}{gpu} ({suspect['why']})"))
    more = len(found) - at_most
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")


def told(run: dict[str, Any], now: float) -> str:
    """Who has been told, and who has taken it on."""
    incident = run.get("incident")
    if not incident:
        return "nobody told yet"
    text = "told: " + (", ".join(clean(sink) for sink in incident["told"]) or "nobody yet")
    number, reference = incident.get("id"), incident.get("reference")
    if number is not None:
        text += f" (incident {number}, {clean(reference)})"
    return text + acknowledged(incident, now)


def acknowledged(incident: dict[str, Any], now: float) -> str:
    """Who has taken an incident on, to be appended; empty while nobody has."""
    if not incident.get("acked_by"):
        return ""
    return f"; acknowledged by {clean(incident['acked_by'])} {span(now - (incident['acked_at'] or now))} ago"


def unanswered(agent: dict[str, Any], now: float) -> str:
    """Why an agent is not fresh, and for how long."""
    why = agent.get("failed") or "no answer yet"
    detail = agent.get("failed_detail")
    if why == "unauthorized":
        why = "refuses our token"
    began = agent.get("failing_since")
    lasts = "" if began is None else f" (for {span(now - began)})"
    return clean(f"{agent['node']}: {why}{f': {detail}' if detail else ''}{lasts}")


def unreadable(agent: dict[str, Any]) -> str:
    """An agent that answers and cannot read its GPUs."""
    detail = agent.get("nvml_detail")
    return clean(
        f"{agent['node']}: GPUs cannot be read ({agent['nvml_state']}{f': {detail}' if detail else ''})"
    )


def other_incident(incident: dict[str, Any], now: float) -> str:
    """An open incident that is about no run."""
    about = f"incident {incident['id']}, {incident['reference']}, about the {incident['subject']}"
    began = f"since {moment(incident['since'], now)} ({span(now - incident['since'])})"
    return clean(f"{about}, {began}: {incident['reason']}") + acknowledged(incident, now)


def unread(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Agents that answer and cannot read their GPUs; a driver that an operator has released is his own choice."""
    fine = {None, "ok", "released"}
    return [agent for agent in status["agents"] if agent["fresh"] and agent.get("nvml_state") not in fine]


def needs_words(run: dict[str, Any]) -> bool:
    """Whether a run needs more than its line in the table."""
    return run["state"] in BAD or run["state"] in LOOK or bool(run.get("incident"))


def urgency(run: dict[str, Any], now: float) -> int:
    """The exit status that one run asks for.

    Returns:
        2 for deadlocked, hung and crashed; 1 once somebody has taken that on, and for slow, unknown and lingering; 0 for
        the rest, and for what went bad a day ago or more.
    """
    state = run["state"]
    if state in LOOK:
        return 1
    if state not in BAD or now - run["since"] >= _DAY_S:
        return 0
    return 1 if (run.get("incident") or {}).get("acked_by") else 2


def watcher_urgency(status: dict[str, Any]) -> int:
    """The exit status that agents and incidents about no run ask for: 1 when one needs a look, else 0."""
    return 1 if unread(status) or status.get("incidents") else 0


def blindness(status: dict[str, Any]) -> str | None:
    """Why the watcher's own words are not to be relied on, in one sentence; None when they are. /healthz says the same."""
    unwell = status["watcher"]["unwell"]
    return clean(unwell) if unwell else None
