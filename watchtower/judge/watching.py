"""Asks whether the watcher itself, or some of its nodes, are blind; one incident for all of them each. Judges no run."""

from collections.abc import Mapping

from watchtower.classify.memory import NodeMemory, RunMemory
from watchtower.classify.settings import Thresholds
from watchtower.model import NvmlState, RunState, Severity, Suspect, Verdict

WATCHER = "watcher"
NODES = "nodes"
_NAMED = 10


def watcher_blind(
    nodes: Mapping[str, NodeMemory], verdicts: Mapping[str, Verdict], *, now: float, thresholds: Thresholds
) -> Verdict | None:
    """Blame ourselves first: most agents silent is one incident, about the watcher.

    Not where exactly one run cannot be seen for it: that run's own incident tells.
    """
    since = {node.node: heard for node in nodes.values() if (heard := _last_heard(node)) is not None}
    silent = {name: heard for name, heard in since.items() if now - heard > thresholds.stale_after_s}
    unseen = [verdict for verdict in verdicts.values() if verdict.state is RunState.UNKNOWN]
    if len(unseen) == 1 or len(silent) * 2 <= len(nodes):
        return None
    with_them = f" and {len(unseen)} runs with them" if unseen else ""
    return _blind(
        f"the watcher cannot see {len(silent)} of {len(nodes)} agents ({_names(silent)}){with_them}",
        dict.fromkeys(silent, "does not answer"),
        since=max(silent.values()),
        now=now,
    )


def nodes_blind(
    nodes: Mapping[str, NodeMemory],
    runs: Mapping[str, RunMemory],
    verdicts: Mapping[str, Verdict],
    *,
    now: float,
    thresholds: Thresholds,
) -> Verdict | None:
    """Nodes of which nothing can be said: the agent is silent, or it answers and cannot read its GPUs.

    Not those of a run that is `unknown` because of them: its own incident tells. A driver that an operator has released is his
    choice and no blindness.
    """
    told = {
        rank.node
        for run_id, verdict in verdicts.items()
        if verdict.state is RunState.UNKNOWN and run_id in runs
        for rank in runs[run_id].present()
    }
    why: dict[str, str] = {}
    since: list[float] = []
    for node in nodes.values():
        heard = _last_heard(node)
        if node.node in told or heard is None:
            continue
        if now - heard > thresholds.stale_after_s:
            why[node.node] = f"does not answer ({node.failed or 'silent'})"
            since.append(heard)
        elif node.nvml_since is not None and node.nvml_state not in {NvmlState.OK, NvmlState.RELEASED}:
            detail = f": {node.nvml_detail}" if node.nvml_detail else ""
            why[node.node] = f"cannot read its GPUs, NVML {node.nvml_state}{detail}"
            since.append(node.nvml_since)
    if not why:
        return None
    words = "; ".join(f"{name} {text}" for name, text in sorted(why.items())[:3]) + (
        " …" if len(why) > 3 else ""
    )
    return _blind(
        f"{len(why)} of {len(nodes)} nodes cannot be watched: {words}", why, since=min(since), now=now
    )


def seeing(now: float) -> Verdict:
    """All that was blind sees again."""
    return Verdict(
        run_id="", at=now, state=RunState.PROGRESSING, since=now, reason="agents answer again", severity=None
    )


def _blind(reason: str, why: Mapping[str, str], *, since: float, now: float) -> Verdict:
    return Verdict(
        run_id="",
        at=now,
        state=RunState.UNKNOWN,
        since=since,
        reason=reason,
        severity=Severity.WARNING,
        suspects=tuple(Suspect(None, name, None, text) for name, text in sorted(why.items())[:_NAMED]),
    )


def _last_heard(node: NodeMemory) -> float | None:
    """When the agent last answered; of one that never has, since when it is known not to."""
    return node.answered_at if node.answered_at is not None else node.silent_since


def _names(names: Mapping[str, float]) -> str:
    return ", ".join(sorted(names)[:5]) + (" …" if len(names) > 5 else "")
