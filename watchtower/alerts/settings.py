"""What a site may choose about alerts: how long good must last, how long blindness may last, who hears what. Decides nothing itself."""

import msgspec

from watchtower.model import Severity


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which severities one sink hears of; a sink hears of everything at or above `min_severity`."""

    sink: str
    min_severity: Severity = Severity.WARNING


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The times of an incident's life, and its routes.

    Args:
        instance: names this watcher; part of every incident's key, so that two watchers never share one.
        keep_s: seconds a run must be good again, without a break, before its incident is resolved. Too short costs a
            second page when the run relapses; too long costs only a line that stays open. 120 s is two steps of a slow
            60-s-a-step run.
        unknown_after_s: seconds of `unknown` before that alone is told.
        suspects_every_s: when only the suspects change, people hear of it at most once in this many seconds.
        routes: in the order in which sinks are told.
    """

    instance: str = "watchtower"
    keep_s: float = 120.0
    unknown_after_s: float = 300.0
    suspects_every_s: float = 60.0
    routes: tuple[Route, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: a time is negative, or `suspects_every_s` is not above zero; names the key.
        """
        if self.keep_s < 0:
            raise ValueError("keep_s must not be negative")
        if self.unknown_after_s < 0:
            raise ValueError("unknown_after_s must not be negative")
        if self.suspects_every_s <= 0:
            raise ValueError("suspects_every_s must be above zero")
