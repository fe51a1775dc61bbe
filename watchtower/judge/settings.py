"""All that the judge can be told: classify's numbers, what a site says about runs, and how alerts live. Reads no file itself."""

import msgspec

from watchtower.alerts.settings import AlertSettings
from watchtower.classify.settings import RunRule, Thresholds


class JudgeSettings(Thresholds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of `[judge]`, `[[runs]]` and `[alerts]` in one frozen value."""

    runs: tuple[RunRule, ...] = ()
    alerts: AlertSettings = AlertSettings()

    def thresholds(self) -> Thresholds:
        """The part that classify judges by."""
        return msgspec.convert(
            {name: getattr(self, name) for name in Thresholds.__struct_fields__}, Thresholds
        )
