"""Decides which sinks are owed a notice, and as what: the first that a sink hears of an incident is always a trigger. Sends nothing."""

from msgspec.structs import replace

from watchtower.alerts.settings import Route
from watchtower.model import SEVERITY_RANK, Incident, Notice, NoticeAction, Owed


def owed(incident: Incident, notice: Notice, routes: tuple[Route, ...]) -> tuple[Incident, tuple[Owed, ...]]:
    """Turn one notice into the messages it owes.

    Args:
        incident: the incident that the notice is about, as `advance` returned it.
        notice: of that incident.
        routes: who hears what; one sink in several routes hears it once, by its most open route.

    Returns:
        The incident with `told` brought up to date, and the messages, in the order of the routes. A resolve goes to exactly
        the sinks told, in the order in which they were, also when a route has since been taken away: whoever was woken is
        told that it is over.
    """
    if notice.action is NoticeAction.RESOLVE:
        return incident, tuple(Owed(sink=sink, action=notice.action, notice=notice) for sink in incident.told)
    messages: list[Owed] = []
    told = list(incident.told)
    for sink in dict.fromkeys(route.sink for route in routes):
        if sink in incident.told:
            messages.append(Owed(sink=sink, action=notice.action, notice=notice))
        elif any(_hears(route, notice) for route in routes if route.sink == sink):
            told.append(sink)
            messages.append(Owed(sink=sink, action=NoticeAction.TRIGGER, notice=notice))
    return replace(incident, told=tuple(told)), tuple(messages)


def _hears(route: Route, notice: Notice) -> bool:
    return SEVERITY_RANK[notice.severity] >= SEVERITY_RANK[route.min_severity]
