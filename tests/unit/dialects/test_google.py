"""Google's credentials and the answers of its token endpoint."""

import json

import pytest

from tests.google import EMAIL, account
from tiffin.dialects.google.credentials import (
    TOKENS,
    Login,
    ServiceAccount,
    is_file,
    read_account,
)
from tiffin.dialects.google.grants import Token, login_form, token_of
from tiffin.errors import ConfigInvalid, UpstreamRefused, UpstreamUnavailable

ANY = ["*"]
LOGIN = {
    "type": "authorized_user",
    "client_id": "id",
    "client_secret": "shh-client",
    "refresh_token": "shh-refresh",
}


def test_what_files_hold() -> None:
    found = read_account(account(TOKENS, private_key="PEM"), ANY)
    assert found == ServiceAccount(TOKENS, EMAIL, "k1", "PEM")
    login = read_account(json.dumps(LOGIN), ANY)
    assert isinstance(login, Login)
    assert login_form(login) == (
        b"grant_type=refresh_token&client_id=id&client_secret=shh-client&refresh_token=shh-refresh"
    )
    assert "PEM" not in repr(found)
    assert "shh" not in repr(login)
    assert not is_file("ya29.a-token")


@pytest.mark.parametrize(
    "text",
    ["{", "{}", '{"type":"external_account"}', account(TOKENS, client_email="")],
    ids=["none", "empty", "another", "nobody's"],
)
def test_what_is_no_account_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="service account") as caught:
        read_account(text, ANY)
    assert "PRIVATE" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://oauth2.googleapis.com/token", ANY),
        ("https://oauth2.googleapis.com/token", ["*.googleapis.com"]),
        ("http://127.0.0.1:9000/token", ["127.0.0.1:9000"]),
        ("https://tokens.internal/", ["*", "tokens.internal"]),
    ],
)
def test_tokens_are_had_from_where_egress_allows(url: str, allowed: list[str]) -> None:
    assert read_account(account(url, private_key="x"), allowed).token_url == url


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://oauth2.googleapis.com/token", ["example.com"]),
        ("http://oauth2.googleapis.com/token", ANY),
        ("http://169.254.169.254/token", ANY),
        ("https://169.254.169.254/token", ANY),
        ("https://2130706433/token", ANY),
        ("https://localhost/token", ANY),
        ("https://me:pw@oauth2.googleapis.com/token", ANY),
        ("https://oauth2.googleapis.com/token\r\nx: y", ANY),
        ("ftp://files.example.com/", ["files.example.com"]),
        ("file:///etc/passwd", ANY),
        ("", ANY),
    ],
)
def test_they_are_had_from_nowhere_else(url: str, allowed: list[str]) -> None:
    with pytest.raises(ConfigInvalid, match="token_uri") as caught:
        read_account(account(url, private_key="x"), allowed)
    assert "pw" not in str(caught.value).replace("passwd", "")


def test_answers_that_have_a_token() -> None:
    found = token_of("h", 200, b'{"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"}')
    assert isinstance(found, Token)
    assert (found.access_token, found.expires_in) == ("ya29.x", 3599)
    assert "ya29" not in repr(found)


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (200, b"<html>", UpstreamUnavailable, "no token"),
        (200, b'{"access_token":""}', UpstreamUnavailable, "no token"),
        (200, b'{"access_token":"a\\r\\nb"}', UpstreamUnavailable, "no token"),
        (200, b'{"access_token":"a","expires_in":0}', UpstreamUnavailable, "no token"),
        (503, b"", UpstreamUnavailable, "503"),
        (429, b"", UpstreamUnavailable, "429"),
        (302, b"", UpstreamRefused, "302"),
        (400, b'{"error":"invalid_grant"}', UpstreamRefused, "400, invalid_grant"),
        (401, b'{"error":"<b>odd</b>"}', UpstreamRefused, r"status 401\)"),
        (
            400,
            b'{"error":"invalid_grant","error_description":"check your iat and exp values"}',
            UpstreamRefused,
            "clock",
        ),
    ],
)
def test_answers_that_have_none(status: int, body: bytes, kind: type[Exception], said: str) -> None:
    found = token_of("h", status, body)
    assert isinstance(found, kind)
    with pytest.raises(kind, match=said):
        raise found
    if isinstance(found, UpstreamRefused):
        assert found.status == 401
