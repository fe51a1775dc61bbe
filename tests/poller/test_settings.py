"""Which poll settings and certificate files are refused, and in which words."""

from pathlib import Path

import pytest
import trustme

from watchtower.poller.settings import PollSettings
from watchtower.poller.tls import TlsError, client_context


@pytest.mark.parametrize("timeout_s", [5.0, 6.0, 0.0, -1.0])
def test_a_timeout_that_reaches_the_interval_is_refused(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        PollSettings(interval_s=5.0, timeout_s=timeout_s)


def test_a_key_without_its_certificate_is_refused() -> None:
    with pytest.raises(ValueError, match="cert_file"):
        PollSettings(key_file=Path("k"))


def test_certificates_are_loaded(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, both = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("watchtower").private_key_and_cert_chain_pem.write_to_path(both)
    context = client_context(PollSettings(ca_file=ca, cert_file=both))
    assert len(context.get_ca_certs()) == 1


def test_each_unusable_certificate_file_is_named(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("hello")
    gone = tmp_path / "gone.pem"
    for settings in (
        PollSettings(ca_file=junk),
        PollSettings(ca_file=gone),
        PollSettings(cert_file=junk),
        PollSettings(cert_file=gone),
    ):
        with pytest.raises(TlsError, match=r"poll\.(ca|cert)_file.*(junk|gone)\.pem"):
            client_context(settings)
