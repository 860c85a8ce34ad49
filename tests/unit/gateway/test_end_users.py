"""Whom a request is for: its header says, else its body, to accounts as to limits."""

from typing import Any

import pytest

from tests.unit.gateway.test_walk import ScriptedBackend, Shop, whole
from tiffin.gateway.account import END_USER
from tiffin.testing.exchange import answered

EMAIL = "ann.lee@example.com"


async def closed_for(header: str | None, **body: Any) -> tuple[str, str]:
    """The end users of the opening and of the closing of a request's account."""
    shop = Shop(ScriptedBackend(whole()))
    headers = [] if header is None else [(END_USER, header.encode())]
    exchange = await answered(shop.handler, shop.request(headers=headers, **body))
    assert exchange.status == 200
    return shop.ledger.opened[-1].end_user, shop.ledger.last.end_user


@pytest.mark.parametrize(
    ("header", "body", "told"),
    [
        (None, {}, ("", "")),
        (None, {"user": "u-4711"}, ("", "u-4711")),
        (None, {"user": "u-1", "safety_identifier": "s-2"}, ("", "s-2")),
        (None, {"prompt_cache_key": "k"}, ("", "")),
        ("u-9", {"user": "u-4711"}, ("u-9", "")),
        ("", {"user": "u-4711"}, ("", "u-4711")),
        (None, {"user": "u" * 10_000}, ("", "u" * 128)),
    ],
    ids=["nobody", "user", "safety identifier", "a cache's key", "header", "empty header", "long"],
)
async def test_the_header_says_it_and_without_one_the_body(
    header: str | None, body: dict[str, Any], told: tuple[str, str]
) -> None:
    assert await closed_for(header, **body) == told


async def test_what_looks_personal_in_the_body_isnt_kept() -> None:
    _, kept = await closed_for(None, user=EMAIL)
    assert "ann" not in kept
    assert "example" not in kept


async def test_a_refused_request_is_its_end_users_too() -> None:
    shop = Shop(ScriptedBackend(whole()))
    await answered(shop.handler, shop.request(model="unknown", user="u-1"))
    assert (shop.ledger.last.status, shop.ledger.last.end_user) == (404, "u-1")
