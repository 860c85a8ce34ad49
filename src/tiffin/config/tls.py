"""TLS of the public port: from what `[server.tls]` refers to to a context, checked on the way."""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from tiffin.config.secrets import read_secret, text_of
from tiffin.errors import ConfigInvalid
from tiffin.types.tls import Tls

CERTIFICATE: Final = "server.tls.certificate"
CLIENT_CA: Final = "server.tls.client_ca"

# With TLS 1.3's own, which are all of this kind: keys are forgotten, what is sent is authenticated.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_ASKED: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_WEAK: Final = frozenset({"EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"})
_OTHERS: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a server shows, and whom it lets in: all in PEM, `client` as in the configuration."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes = b""
    client: str = "none"

    @property
    def admits(self) -> tuple[str, bytes]:
        """What says who may connect."""
        return self.client, self.client_ca


def credentials_of(tls: Tls, environ: Mapping[str, str] | None = None) -> Credentials:
    """What is there now; raises `ConfigInvalid` that names the setting where it can't be used."""
    where = key_setting(tls)
    try:
        key = read_secret(
            env=tls.key_env, file=tls.key_file, command=tls.key_command, environ=environ
        )
    except ConfigInvalid as cause:
        raise ConfigInvalid(cause.message, where=where) from cause
    if "ENCRYPTED" in key:
        raise ConfigInvalid("the key has a passphrase; give it without one", where=where)
    found = Credentials(
        certificate=_certificates(tls.certificate, CERTIFICATE),
        key=key.encode() + b"\n",
        client_ca=_certificates(tls.client_ca, CLIENT_CA) if tls.client_ca else b"",
        client=tls.client,
    )
    context_of(found, where)
    return found


def context_of(credentials: Credentials, where: str = "server.tls") -> ssl.SSLContext:
    """A server's context: TLS 1.2 and 1.3, with ciphers that both have in common.

    Raises `ConfigInvalid`; `where` is the setting that the key is from.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    try:
        with _file(credentials.certificate, credentials.key) as path:
            # Without a password it would ask whoever sits at the terminal.
            context.load_cert_chain(path, password=lambda: b"")
    except ssl.SSLError as cause:
        raise _refused(cause, where) from cause
    if credentials.client_ca:
        context.load_verify_locations(cadata=credentials.client_ca.decode("ascii"))
    context.verify_mode = _ASKED[credentials.client]
    return context


def ends_s(credentials: Credentials) -> float:
    """When the server's own certificate ends, in seconds since 1970; 0 where it has ended.

    Raises `ConfigInvalid` where no client could accept it, whomever it trusts.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=credentials.certificate.decode("ascii"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    plain = replace(credentials, client="none", client_ca=b"")
    shown = context_of(plain).wrap_bio(to_server, to_client, server_side=True)
    try:
        _shake_hands(asking, shown)
    except ssl.SSLCertVerificationError as cause:
        if cause.verify_code == _EXPIRED:
            return 0.0
        message = f"no client can accept the certificate: {cause.verify_message}"
        raise ConfigInvalid(message, where=CERTIFICATE) from cause
    found = asking.getpeercert()
    return float(ssl.cert_time_to_seconds(str(found["notAfter"]))) if found else 0.0


def _shake_hands(client: ssl.SSLObject, server: ssl.SSLObject) -> None:
    """A handshake in memory: client and server take turns until the client is content."""
    for one in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            one.do_handshake()


def key_setting(tls: Tls) -> str:
    """The setting that refers to the key."""
    given = (name for name in ("key_file", "key_env", "key_command") if getattr(tls, name))
    return f"server.tls.{next(given, 'key_file')}"


def _refused(cause: ssl.SSLError, where: str) -> ConfigInvalid:
    reason = cause.reason or "it isn't PEM"
    if reason in _WEAK:
        return ConfigInvalid(f"the certificate is too weak: {reason}", where=CERTIFICATE)
    if reason in _OTHERS:
        return ConfigInvalid(f"the key isn't that of {CERTIFICATE}", where=where)
    return ConfigInvalid(f"no private key can be read there: {reason}", where=where)


def _certificates(path: str, where: str) -> bytes:
    """A file of certificates in PEM, without whatever else it has."""
    try:
        text = text_of(path, "ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except ssl.SSLError as cause:
        raise ConfigInvalid(f"{path} has no certificates in PEM", where=where) from cause
    except UnicodeDecodeError as cause:
        raise ConfigInvalid(f"{path} isn't PEM, which is ASCII", where=where) from cause
    except (OSError, RuntimeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else cause
        raise ConfigInvalid(f"{path} can't be read: {reason}", where=where) from cause
    return "".join(_blocks(text)).encode()


def _blocks(text: str) -> Iterator[str]:
    for part in text.split(_BEGIN)[1:]:
        yield f"{_BEGIN}{part.partition(_END)[0]}{_END}\n"


_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


@contextmanager
def _file(*parts: bytes) -> Iterator[str]:
    """A path at which these parts can be read; they are in memory alone."""
    with os.fdopen(os.memfd_create("tiffin-tls"), "wb") as file:
        file.write(b"\n".join(parts))
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
