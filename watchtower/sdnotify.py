"""Tells systemd how this process is (READY, WATCHDOG, STOPPING) over $NOTIFY_SOCKET; does nothing where there is none."""

import os
import socket


def notify(state: str) -> bool:
    """Send one sd_notify message such as `READY=1` or `WATCHDOG=1`.

    Returns:
        True when it was handed to systemd, False when not run by systemd or the socket did not take it.

    Source: sd_notify(3); a leading `@` names an abstract socket.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError:
        return False
    return True


def watchdog_interval_s() -> float | None:
    """Seconds within which systemd wants WATCHDOG=1, or None where it does not ask for it."""
    usec = os.environ.get("WATCHDOG_USEC", "")
    return int(usec) / 1e6 if usec.isdigit() and int(usec) > 0 else None
