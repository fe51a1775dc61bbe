"""Joins the two sources of Xids, the kernel's log and NVML's events, so that each is told once. Reads neither."""

from collections.abc import Sequence

from watchtower import wire

# The kernel's log is read once a second and names the process too, so it gets this long to speak first.
_HOLD_S = 3.0
_SAME_S = 6.0


class XidJoiner:
    """Holds back what NVML says until the kernel's log has had its chance to say it better. For one thread."""

    def __init__(self) -> None:
        self._held: list[tuple[float, wire.Event]] = []
        self._logged: dict[tuple[str | None, int | None], float] = {}

    def join(
        self, logged: Sequence[wire.Event], signalled: Sequence[wire.Event], now: float
    ) -> tuple[wire.Event, ...]:
        """What to tell now.

        Args:
            logged: new events of the node side, Xids of the kernel's log among them.
            signalled: new Xids from NVML.
            now: monotonic seconds.

        Returns:
            All of `logged`, then those from NVML that are old enough and that the log has not told.
        """
        for event in logged:
            if event.kind == "xid":
                self._logged[event.gpu_uuid, event.code] = now
        self._held += [(now, event) for event in signalled]
        told = [*logged]
        keep = []
        for at, event in self._held:
            logged_at = self._logged.get((event.gpu_uuid, event.code))
            if logged_at is not None and abs(logged_at - at) <= _SAME_S:
                continue
            if now - at < _HOLD_S:
                keep.append((at, event))
            else:
                told.append(event)
        self._held = keep
        self._logged = {key: at for key, at in self._logged.items() if now - at <= _SAME_S}
        return tuple(told)
