"""Credentials of the public port: what can't be used is named by its setting."""

import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.certificates import Authority, Signed
from tiffin.config.load import load_text
from tiffin.config.tls import context_of, credentials_of
from tiffin.errors import ConfigInvalid
from tiffin.types.tls import Tls


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(signed: Signed) -> Tls:
    return Tls(certificate=str(signed.certificate), key_file=str(signed.key))


def replaced(tls: Tls, **more: object) -> Tls:
    return msgspec.structs.replace(tls, **more)


def test_a_certificate_and_its_key_make_a_modern_context(authority: Authority) -> None:
    found = credentials_of(tls_of(authority.sign("server")))
    context = context_of(found)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert all("GCM" in one["name"] or "POLY" in one["name"] for one in context.get_ciphers())
    assert found.key.decode() not in repr(found)


@pytest.mark.parametrize("way", ["key_env", "key_command"])
def test_the_key_comes_from_elsewhere_too(authority: Authority, way: str) -> None:
    signed = authority.sign("server")
    key = "KEY" if way == "key_env" else ["/bin/cat", str(signed.key)]
    tls = replaced(tls_of(signed), key_file="", **{way: key})
    found = credentials_of(tls, {"KEY": signed.key.read_text()})
    assert context_of(found).verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("spoil", "where", "said"),
    [
        (lambda s: s.certificate.unlink(), "certificate", "can't be read: No such file"),
        (lambda s: s.certificate.write_text("x"), "certificate", "no certificates in PEM"),
        (lambda s: s.certificate.write_bytes(b"\xff"), "certificate", "isn't PEM"),
        (lambda s: s.key.unlink(), "key_file", "can't be read"),
        (lambda s: s.key.write_text("x"), "key_file", "no private key can be read"),
    ],
    ids=["gone", "text", "bytes", "no key", "no key in it"],
)
def test_what_cannot_be_used_is_named(
    authority: Authority, spoil: Callable[[Signed], None], where: str, said: str
) -> None:
    signed = authority.sign("server")
    spoil(signed)
    with pytest.raises(ConfigInvalid, match=said) as refused:
        credentials_of(tls_of(signed))
    assert refused.value.where == f"server.tls.{where}"


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    one, other = authority.sign("one"), authority.sign("other")
    with pytest.raises(ConfigInvalid, match=r"isn't that of server\.tls\.certificate"):
        credentials_of(replaced(tls_of(one), key_file=str(other.key)))


def test_a_key_with_a_passphrase_asks_nobody(authority: Authority) -> None:
    signed = authority.sign("server")
    authority.renew(signed, b"secret")
    with pytest.raises(ConfigInvalid, match="has a passphrase"):
        credentials_of(tls_of(signed))


def test_an_authority_that_cannot_be_read_is_named(authority: Authority) -> None:
    tls = replaced(tls_of(authority.sign("server")), client="required", client_ca="/no/where")
    with pytest.raises(ConfigInvalid, match="No such file") as refused:
        credentials_of(tls)
    assert refused.value.where == "server.tls.client_ca"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("key_file = '/k'", "server.tls.certificate: missing"),
        ("certificate = '/c'", "server.tls: expected exactly one of key_env, key_file"),
        ("certificate = '/c'\nkey_file = '/k'\nkey_env = 'K'", "server.tls: expected exactly one"),
        ("certificate = 'c'\nkey_file = '/k'", "server.tls.certificate: expected an absolute path"),
        ("certificate = '/c'\nkey_command = ['k']", "server.tls.key_command"),
        ("certificate = '/c'\nkey_file = '/k'\nclient = 'required'", "server.tls.client_ca"),
        ("certificate = '/c'\nkey_file = '/k'\nclient_ca = '/a'", "server.tls.client: missing"),
        ("certificate = '/c'\nkey_file = '/k'\nclient = 'maybe'", "server.tls.client: found"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load_text(f"[server.tls]\n{text}".encode(), {})
    assert str(refused.value).startswith(said)
