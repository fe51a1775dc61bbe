"""Says what one rank's GPU is doing: working, spinning or idle, against its own working power. Knows nothing of other ranks."""

from collections.abc import Sequence

from watchtower.classify.memory import RankMemory
from watchtower.classify.settings import Thresholds
from watchtower.model import Activity, Sample

# Memory utilization below this share of the rank's own working value, or below this many per cent, counts as still.
_STILL_SHARE = 0.25
_STILL_PCT = 3.0
# A working value below this many per cent says nothing when it falls.
_TELLING_MEM_UTIL_PCT = 8.0
# Below this share of the assumed or learned working power a board is not computing, whatever else moves.
_DARK_SHARE = 0.3


def sample_activity(
    power_w: float | None,
    util_pct: float | None,
    mem_util_pct: float | None,
    *,
    rank: RankMemory,
    thresholds: Thresholds,
) -> Activity:
    """Judge one reading of one board.

    Args:
        power_w: board power; None where it is not readable (then utilization and memory utilization alone speak).
        util_pct: share of the sample period with a kernel resident; None under MIG.
        mem_util_pct: share of the sample period in which memory moved.
        rank: for its learned working level, or its enforced limit before one is learned.

    Returns:
        WORKING: drawing at least `spin_share_still_memory` of its working power, or `spin_share` of it unless memory stands
        still that usually moves, or less while memory moves as it does at work.
        SPINNING / IDLE: not so, with high / low utilization. UNSEEN: neither power nor utilization is known.
    """
    if power_w is None:
        return _without_power(util_pct, mem_util_pct)
    working_w = rank.working_w
    if working_w is None:
        limit_w = rank.power_limit_w
        if limit_w is None or limit_w <= 0:
            return _without_power(util_pct, mem_util_pct)
        working_w = limit_w * thresholds.assumed_working_share
    share = power_w / working_w if working_w > 0 else 1.0
    usual = rank.working_mem_util
    telling = mem_util_pct is not None and usual is not None and usual >= _TELLING_MEM_UTIL_PCT
    still = telling and (mem_util_pct or 0.0) < max(_STILL_PCT, _STILL_SHARE * (usual or 0.0))
    if share >= thresholds.spin_share_still_memory:
        return Activity.WORKING
    if share >= thresholds.spin_share and not still:
        return Activity.WORKING
    if share >= _DARK_SHARE and telling and not still:
        return Activity.WORKING
    return Activity.IDLE if util_pct is not None and util_pct < 50 else Activity.SPINNING


def _without_power(util_pct: float | None, mem_util_pct: float | None) -> Activity:
    if util_pct is None:
        return Activity.UNSEEN
    if util_pct < 5:
        return Activity.IDLE
    if util_pct >= 95 and (mem_util_pct is None or mem_util_pct < _STILL_PCT):
        return Activity.SPINNING
    return Activity.WORKING


def last_worked(
    samples: Sequence[Sample], *, at: float, after: float, rank: RankMemory, thresholds: Thresholds
) -> float | None:
    """When the newest sample was taken that shows work, or None where none of the new samples does.

    Args:
        samples: oldest first.
        at: when the reading was received; ages count back from it.
        after: samples up to this moment were judged before.
    """
    for age, power_w, util_pct, mem_util_pct, _, _ in reversed(samples):
        moment = at - age
        if moment <= after:
            return None
        if (
            sample_activity(power_w, util_pct, mem_util_pct, rank=rank, thresholds=thresholds)
            is Activity.WORKING
        ):
            return moment
    return None


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
