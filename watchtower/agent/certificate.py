"""Tells whether the agent's own certificate is out of date, by a handshake with itself in memory. Decides nothing, and opens no socket."""

import ssl
from pathlib import Path

# Source: OpenSSL, x509_vfy.h: X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED.
_WORDS = {
    9: "is not valid yet (is this machine's clock right?)",
    10: "has expired (make a new one with `watchtower init`)",
}


def date_trouble(certificate: Path, key: Path) -> str | None:
    """What a watcher would say of the certificate's dates.

    `ssl` shows the dates of a certificate only after a handshake, and the `cryptography` package that could read them would
    take memory for as long as the agent runs.

    Args:
        certificate: PEM, with its chain.
        key: PEM; both have been loaded once without trouble.

    Returns:
        A few words that go on after the file's name, None when the dates are right.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # it is its own authority here
    client.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(there, back, server_side=True)
    theirs = client.wrap_bio(back, there)
    for side in (theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return _WORDS.get(error.verify_code)
        except ssl.SSLError:
            return None  # something else is odd; who connects will say what
    return None
