"""What a site says about asking its agents, as one frozen struct. Opens no file: that is tls.py and targets.py."""

from pathlib import Path

import msgspec


class PollSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[poll]` of the configuration.

    `targets` are `host:port`, `name=host:port` or a whole URL; `target_files` are Prometheus file_sd JSON files, and the last
    part of each path may hold `*`. With `ca_file` set, targets without a scheme are asked over https.
    """

    interval_s: float = 5.0
    timeout_s: float = 3.0
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    targets: tuple[str, ...] = ()
    target_files: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        """Refuse settings that cannot work together.

        Raises:
            ValueError: names the keys; shown to the user by the loader.
        """
        if not 1.0 <= self.interval_s <= 300.0:
            raise ValueError(f"interval_s must be from 1 to 300 seconds, got {self.interval_s:g}")
        if not 0.0 < self.timeout_s < self.interval_s:
            raise ValueError(
                f"timeout_s ({self.timeout_s:g}) must be above 0 and below interval_s ({self.interval_s:g}), "
                "or a dead agent would still be asked when its next turn comes"
            )
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file is set without cert_file; set both, or neither")
