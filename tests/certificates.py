"""Certificates for tests: an authority, and what it signs, as files in PEM."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


class Authority:
    """One that nobody knows but who is given its `path`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = _begun(self._name, self._name, self._key)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def sign(self, name: str, days: int = 90) -> "Signed":
        """A certificate for this machine, and its key, in files of this name."""
        signed = Signed(self.folder, name)
        self.renew(signed, days=days)
        return signed

    def renew(self, signed: "Signed", passphrase: bytes = b"", days: int = 90) -> None:
        """Put another certificate with another key into its files, each file whole at once."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, signed.certificate.stem)])
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
        )
        made = _begun(subject, self._name, key, days).add_extension(names, critical=False)
        certificate = made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        for path, content in (
            (signed.key, secret),
            (signed.certificate, certificate),
            (signed.both, certificate + secret),
        ):
            fresh = path.with_suffix(".fresh")
            fresh.write_bytes(content)
            fresh.replace(path)


class Signed:
    """The files of a certificate, of its key, and of both."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"
        self.both = folder / f"{name}.both"


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 90
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
