"""Reads secrets from files, never from the command line, and compares them without leaking timing. Never logs or returns one in an error."""

import hmac
from pathlib import Path

_MAX_BYTES = 64 * 1024


class SecretError(Exception):
    """A secret file cannot be used; the message names the file and what to do, never the content."""


def read_secret(path: Path) -> str:
    """Read one secret, without the white space around it (an editor's last newline breaks a URL or a header).

    Raises:
        SecretError: missing, unreadable, empty, not text, or with a line break inside; show it to the user.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SecretError(f"cannot read secret file {path}: {error.strerror}") from None
    if len(raw) > _MAX_BYTES:
        raise SecretError(f"secret file {path} is larger than {_MAX_BYTES} bytes; is it the right file?")
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise SecretError(f"secret file {path} is not text") from None
    if not text:
        raise SecretError(f"secret file {path} is empty")
    if "\n" in text or "\r" in text:
        raise SecretError(f"secret file {path} has more than one line; put the secret alone on one line")
    return text


def same_secret(given: str, wanted: str) -> bool:
    """Whether two secrets are equal, in time that does not depend on where they differ."""
    return hmac.compare_digest(
        given.encode("utf-8", "surrogateescape"), wanted.encode("utf-8", "surrogateescape")
    )
