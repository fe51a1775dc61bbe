"""Learns what a rank and a run do while all is well: working power, pace, pauses. Judges nothing."""

from watchtower.classify.memory import RankMemory
from watchtower.model import Activity

_LEAST_UTIL_PCT = 20.0
# A poll below this share of the learned level is a pause, not a new normal.
_PAUSE_SHARE = 0.6
_SLOW_WEIGHT = 0.03
_FIRST_POLLS = 20
# Without a step feed a level is believed to be work only from this share of the enforced limit on.
_UNFED_LEAST_SHARE = 0.35


def learn_working_level(rank: RankMemory, *, steps_go_on: bool, fed: bool) -> None:
    """Move the rank's working level towards its newest poll.

    Args:
        steps_go_on: a step came since the poll before: whatever the board draws now is work.
        fed: the run has a step feed; without one only plainly high power teaches.
    """
    power_w = rank.board_power_w
    if power_w is None or rank.util_pct is None or rank.util_pct < _LEAST_UTIL_PCT:
        return
    if rank.working_w is None:
        limit_w = rank.power_limit_w
        plain = limit_w is not None and power_w >= _UNFED_LEAST_SHARE * limit_w
        if steps_go_on or (not fed and plain):
            rank.working_w, rank.working_mem_util, rank.learned_polls = power_w, rank.mem_util_pct, 1
        return
    if power_w < _PAUSE_SHARE * rank.working_w and not (steps_go_on and rank.learned_polls < _FIRST_POLLS):
        return
    if fed and not steps_go_on and rank.activity is not Activity.WORKING:
        return
    rank.learned_polls += 1
    weight = max(_SLOW_WEIGHT, 1.0 / min(rank.learned_polls, 1_000_000))
    rank.working_w += weight * (power_w - rank.working_w)
    if rank.mem_util_pct is not None:
        usual = rank.working_mem_util if rank.working_mem_util is not None else rank.mem_util_pct
        rank.working_mem_util = usual + weight * (rank.mem_util_pct - usual)


def follow_power_limit(rank: RankMemory, limit_w: float | None) -> None:
    """Carry the learned level over when the enforced limit changes: a lowered cap is not a fault."""
    old_w = rank.power_limit_w
    rank.power_limit_w = limit_w if limit_w is not None else old_w
    if (
        old_w
        and limit_w
        and rank.working_w is not None
        and abs(limit_w - old_w) > 0.02 * old_w
        and rank.working_w > 0.6 * min(old_w, limit_w)
    ):
        rank.working_w *= limit_w / old_w
        rank.learned_polls = min(rank.learned_polls, 5)
