"""What a site says about the daemon's own HTTP port. Opens no port and no file."""

import ipaddress
from pathlib import Path

import msgspec

DEFAULT_LISTEN = "127.0.0.1:9478"


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[web]` of the configuration.

    With `token_file` set, everything but /healthz asks for it. `public_url` is where people reach this daemon; it is what
    links in messages point at. `insecure` allows listening beyond loopback without a token.
    """

    listen: str = DEFAULT_LISTEN
    token_file: Path | None = None
    public_url: str | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        """Refuse an address that is none, and an open door that nobody asked for.

        Raises:
            ValueError: names the keys; shown to the user by the loader.
        """
        host, _ = split_address(self.listen)
        if not (self.insecure or self.token_file is not None or is_loopback(host)):
            raise ValueError(
                f"listen = {self.listen!r} is open to other machines without a token: set token_file, "
                "or insecure = true if a proxy in front keeps strangers out"
            )
        if self.public_url is not None and not self.public_url.startswith(("http://", "https://")):
            raise ValueError(f"public_url must begin with http:// or https://, got {self.public_url!r}")


def split_address(listen: str) -> tuple[str, int]:
    """Split `host:port` or `[v6]:port`; an empty host means every address.

    Raises:
        ValueError: not an address; quotes it.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or not int(port) < 65536:
        raise ValueError(f"listen must be host:port, got {listen!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address; a name other than localhost counts as open."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
