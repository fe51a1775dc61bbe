"""Asks which ranks stand out in a stalled or slow run. Names nobody rather than the wrong one."""

from watchtower.classify.activity import mean
from watchtower.classify.memory import RankMemory, RunMemory
from watchtower.model import Activity, Suspect

# Boards are sampled once a second and nodes are polled apart: a smaller lead is within the error.
_LEAD_S = 2.6
# More of the run than this share does not stand out from it.
_MOST_SHARE = 0.5
_HOT_REASONS = frozenset(
    {
        "hw_slowdown",
        "hw_thermal_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal",
        "sw_thermal",
        "hw_power_brake",
        "hw_power_brake_slowdown",
    }
)


def odd_ones_out(run: RunMemory, *, now: float) -> tuple[Suspect, ...]:
    """The ranks that do other than the rest while a run stands still, or that stopped working clearly before the rest.

    Returns:
        In this order of strength: idle among spinning (or the few that spin among idle), working while the rest wait, first
        to stop by more than the sampling error; empty where nobody stands out.
    """
    present = run.present()
    seen = [rank for rank in present if rank.activity in {Activity.WORKING, Activity.SPINNING, Activity.IDLE}]
    if len(seen) < 2:
        return ()
    idle = [rank for rank in seen if rank.activity is Activity.IDLE]
    spinning = [rank for rank in seen if rank.activity is Activity.SPINNING]
    working = [rank for rank in seen if rank.activity is Activity.WORKING]
    if working and len(working) <= _MOST_SHARE * len(seen):
        return _name(working, "works while the others wait for it")
    if idle and spinning:
        if len(idle) <= _MOST_SHARE * len(seen):
            return _name(idle, "idle while the others spin in a collective: it did not enter it, or left it")
        if len(spinning) < len(idle):
            return _name(spinning, "spins alone while the others are idle")
        return ()
    return _first_to_stop(seen)


def _first_to_stop(seen: list[RankMemory]) -> tuple[Suspect, ...]:
    stops = sorted(
        (rank for rank in seen if rank.worked_at is not None), key=lambda rank: rank.worked_at or 0.0
    )
    if len(stops) < max(3, len(seen)):
        return ()
    first, second, last = stops[0], stops[1], stops[-1]
    lead_s = (second.worked_at or 0.0) - (first.worked_at or 0.0)
    spread_s = (last.worked_at or 0.0) - (second.worked_at or 0.0)
    # The rest has to stop together; a lead that is no larger than their own spread is chance.
    if lead_s < _LEAD_S or lead_s < 1.2 * spread_s:
        return ()
    return _name([first], f"stopped working {lead_s:.0f} s before the others")


def stragglers(run: RunMemory) -> tuple[Suspect, ...]:
    """Ranks that slow a run which still steps: clocked down or hot while their peers are not."""
    present = [rank for rank in run.present() if rank.sm_clock_mhz]
    if len(present) < 2:
        return ()
    clocks = sorted(rank.sm_clock_mhz or 0.0 for rank in present)
    usual = clocks[len(clocks) // 2]
    slowed = [rank for rank in present if (rank.sm_clock_mhz or 0.0) < 0.88 * usual]
    if not slowed or len(slowed) > max(1, len(present) // 4):
        return ()
    temperature = mean([rank.temperature_c for rank in present if rank not in slowed])
    out = []
    for rank in slowed:
        hot = [reason for reason in rank.clock_event_reasons if reason in _HOT_REASONS]
        why = f"SM clock {rank.sm_clock_mhz:.0f} MHz against {usual:.0f} MHz"
        if rank.temperature_c is not None and temperature is not None:
            why += f", {rank.temperature_c:.0f} °C against {temperature:.0f} °C"
        out.append(
            Suspect(rank.rank, rank.node, rank.gpu_index, why + (f" ({', '.join(hot)})" if hot else ""))
        )
    return tuple(out)


def _name(ranks: list[RankMemory], why: str) -> tuple[Suspect, ...]:
    ordered = sorted(ranks, key=lambda rank: (rank.rank is None, rank.rank, rank.node, rank.pid))
    return tuple(Suspect(rank.rank, rank.node, rank.gpu_index, why) for rank in ordered)
