"""Looks at what a configuration names on this disk: certificates' dates, the store's directory, patterns of target files. Changes nothing, and decides nothing about the settings themselves."""

import datetime as dt
import os
import pwd
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from watchtower.poller.settings import PollSettings

_SOON = dt.timedelta(days=14)


def certificate_words(poll: PollSettings, now: float) -> tuple[list[str], list[str]]:
    """Read the dates of the certificates that `[poll]` names; files that are no certificates are left to others.

    Args:
        poll: names them.
        now: Unix seconds.

    Returns:
        Mistakes, for a certificate that cannot be used now, and warnings, for one that soon cannot or that has others
        beside it. One sentence each, with key and file.
    """
    mistakes: list[str] = []
    warnings: list[str] = []
    ours, theirs = _certificates(poll.cert_file), _certificates(poll.ca_file)
    for key, path, certificates in (
        ("poll.cert_file", poll.cert_file, ours[:1]),
        ("poll.ca_file", poll.ca_file, theirs),
    ):
        said = [(_unusable(one, now), _soon(one, now)) for one in certificates]
        bad = [why for why, _ in said if why is not None]
        # An authority that has expired beside one that has not is left over from a change.
        (mistakes if len(bad) == len(said) else warnings).extend(f"{key}: {path} {why}" for why in bad)
        warnings.extend(f"{key}: {path} {soon}" for why, soon in said if why is None and soon is not None)
    return mistakes, warnings


def directory_mistake(directory: Path) -> str | None:
    """Why the store could not keep its files there, None where it could. Makes nothing."""
    there = directory
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        what = "is a file, not a directory" if there == directory else f"cannot be made: {there} is a file"
        return f"{directory} {what}"
    if not os.access(there, os.W_OK | os.X_OK):
        what = "is not writable" if there == directory else f"cannot be made: {there} is not writable"
        return f"{directory} {what} by this user ({_user()})"
    return None


def patterns_without_file(patterns: Sequence[Path]) -> list[Path]:
    """Those with `*` and the like in their last part that match no file now."""
    return [
        pattern
        for pattern in patterns
        if any(sign in pattern.name for sign in "*?[") and not any(pattern.parent.glob(pattern.name))
    ]


def _certificates(path: Path | None) -> list[x509.Certificate]:
    if path is None:
        return []
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return []


def _unusable(certificate: x509.Certificate, now: float) -> str | None:
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    if certificate.not_valid_after_utc < moment:
        return f"expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; make a new one (watchtower init)"
    if certificate.not_valid_before_utc > moment:
        return f"is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; is this machine's clock right?"
    return None


def _soon(certificate: x509.Certificate, now: float) -> str | None:
    end = certificate.not_valid_after_utc
    if end - dt.datetime.fromtimestamp(now, dt.UTC) < _SOON:
        return f"expires on {end:%Y-%m-%d %H:%M} UTC"
    return None


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
