"""Asks which processes belong to a run, and which node may speak for it: a stranger that names a run's id changes nothing. Judges no run."""

from collections.abc import MutableMapping

from watchtower.classify.memory import NodeMemory, RunMemory
from watchtower.model import NodeReading, RankReading

# Two live processes on two nodes that claim one rank: the second is kept apart while the first was seen this recently.
_STILL_THERE_S = 60.0


def belongs(run: RunMemory, seen: RankReading) -> bool:
    """Whether a process that names this run is its owner's.

    An agent knows only its own node, so this is where a process of another user, elsewhere, is found out. While either user is
    unknown nobody is turned away; once the run has left, its id is free again.
    """
    return run.user is None or seen.user is None or seen.user == run.user or not run.present()


def heard(
    node: NodeMemory, reading: NodeReading, runs: MutableMapping[str, RunMemory]
) -> dict[str, RunMemory]:
    """The runs that this node may speak for: those that have, or had, a rank of theirs on it; notes them in its memory."""
    named = {seen.run_id for seen in reading.ranks if belongs(runs[seen.run_id], seen)}
    node.runs = tuple(sorted({run_id for run_id in node.runs if run_id in runs} | named))
    return {run_id: runs[run_id] for run_id in node.runs}


def key_of(run: RunMemory, node: str, seen: RankReading, at: float) -> str:
    """The name under which a rank's memory is kept: its number, or its process where the number is unknown or taken."""
    process = f"{node}/{seen.pid}"
    if seen.rank is None or process in run.ranks:
        return process
    known = run.ranks.get(str(seen.rank))
    taken = known is not None and known.present and known.node != node and at - known.seen_at < _STILL_THERE_S
    return process if taken else str(seen.rank)
