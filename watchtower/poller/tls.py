"""Builds the one TLS context that all polls share. Speaks to nobody and keeps nothing."""

import ssl

from watchtower.poller.settings import PollSettings


class TlsError(Exception):
    """The certificate files cannot be used; the message names key and file. Show it to the user."""


def client_context(settings: PollSettings) -> ssl.SSLContext:
    """Build the context with which agents' certificates are checked, and ours shown where one is set.

    One for all agents: a context costs tens of milliseconds and most of a megabyte, so one each would cost a large fleet
    minutes at start.

    Returns:
        A context that trusts only `ca_file` where it is set, else what the system trusts.

    Raises:
        TlsError: a file is missing, unreadable or not what it should be.
    """
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=_authority(settings))
    if settings.cert_file is not None:
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        except ssl.SSLError as error:
            raise TlsError(
                f"poll.cert_file / poll.key_file: {settings.cert_file} and {settings.key_file or settings.cert_file} "
                f"are not a certificate and its key ({error.reason or 'unreadable PEM'})"
            ) from None
        except OSError as error:
            raise TlsError(
                f"poll.cert_file / poll.key_file: cannot read {settings.cert_file} and its key: {error.strerror}"
            ) from None
    return context


def _authority(settings: PollSettings) -> str | None:
    if settings.ca_file is None:
        return None
    try:
        text = settings.ca_file.read_text("ascii")
    except OSError as error:
        raise TlsError(f"poll.ca_file: cannot read {settings.ca_file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TlsError(f"poll.ca_file: {settings.ca_file} is not a PEM file") from None
    try:
        ssl.PEM_cert_to_DER_cert(text[text.find("-----BEGIN CERTIFICATE-----") :])
    except ValueError:
        raise TlsError(f"poll.ca_file: {settings.ca_file} holds no PEM certificate") from None
    return text
