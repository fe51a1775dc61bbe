"""A private certificate authority for a small site: makes or reads it, and signs for nodes and the watcher. Talks to nobody."""

import datetime as dt
import ipaddress
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from watchtower.clock import SystemClock

_BACKDATED = dt.timedelta(hours=1)  # nodes whose clocks are a little behind


class CertificateError(Exception):
    """The authority that is there cannot be used; the message names the file and what to do."""


class Authority:
    """A CA of one's own. `made` and `kept` say what became of its two files."""

    def __init__(
        self,
        certificate: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
        *,
        days: int,
        made: list[Path],
        kept: list[Path],
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._days = days
        self.made = made
        self.kept = kept

    @classmethod
    def of(
        cls, directory: Path, *, days: int, keep: Callable[[Path, Callable[[], bytes]], bool]
    ) -> "Authority":
        """Read the authority in a directory, or make one there.

        Args:
            directory: holds `ca.crt` and `ca.key`, or neither.
            days: how long what it signs is valid; the authority itself lives three times as long.
            keep: writes a new file for its owner only.

        Raises:
            CertificateError: only one of the two is there, or they are not a P-256 authority.
        """
        paths = [directory / "ca.crt", directory / "ca.key"]
        there = [path for path in paths if path.exists()]
        if len(there) == 1:
            raise CertificateError(
                f"{there[0]} is there without its other half; bring that back, or remove this one"
            )
        if there:
            return cls(*_read(*paths), days=days, made=[], kept=paths)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "watchtower private CA")])
        certificate = (
            _begun(subject, subject, key.public_key(), days * 3)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        keep(paths[1], lambda: _key_pem(key))
        keep(paths[0], lambda: certificate.public_bytes(serialization.Encoding.PEM))
        return cls(certificate, key, days=days, made=paths, kept=[])

    def issue(self, host: str | None) -> tuple[bytes, bytes]:
        """Sign a certificate.

        Args:
            host: a node's name or address, for a server certificate; None for the watcher's client certificate.

        Returns:
            Certificate and private key, PEM.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        # A common name holds 64 characters at most; what is checked is the alternative name.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, (host or "watchtower")[:64])])
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if host is None else ExtendedKeyUsageOID.SERVER_AUTH
        authority_key = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            _begun(subject, self._certificate.subject, key.public_key(), self._days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_key), critical=False
            )
        )
        if host is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def _read(certificate: Path, key: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{certificate} and {key} are not a CA that can be used: {error}") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != read.public_key():
        raise CertificateError(f"{key} is not the key of {certificate}")
    return read, private


def _begun(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.fromtimestamp(SystemClock().now(), dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
