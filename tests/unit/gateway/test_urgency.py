"""How urgent a request is: by its header, else by its dialect's own field."""

from typing import cast

import msgspec
import pytest

from tests.unit.gateway.test_walk import local_shop
from tiffin.dialects.dialect import Asked
from tiffin.errors import InvalidRequest
from tiffin.gateway.urgency import is_batch
from tiffin.testing.exchange import FakeExchange
from tiffin.types.snapshot import Terms


class Said:
    """As much of a request as is looked at."""

    def __init__(self, *, batch: bool) -> None:
        self.batch = batch


@pytest.mark.parametrize(
    ("header", "field", "expected"),
    [
        (None, False, False),
        (None, True, True),
        (b"batch", False, True),
        (b" interactive ", True, False),
    ],
)
def test_the_header_counts_before_the_field(
    header: bytes | None, field: bool, expected: bool
) -> None:
    headers = [] if header is None else [(b"x-tiffin-priority", header)]
    exchange = FakeExchange(b"POST", b"/v1/chat/completions", headers=headers)
    assert is_batch(exchange, cast("Asked", Said(batch=field))) is expected


def test_another_word_is_refused() -> None:
    exchange = FakeExchange(b"POST", b"/", headers=[(b"x-tiffin-priority", b"urgent")])
    with pytest.raises(InvalidRequest, match="'batch' or 'interactive'"):
        is_batch(exchange, cast("Asked", Said(batch=False)))


async def test_a_replica_is_told_how_urgent_it_is_and_its_tenant_s_weight() -> None:
    shop = local_shop()
    await shop.ask()
    await shop.ask(service_tier="flex")
    tenants = {"acme": Terms(weight=2.5)}
    shop.snapshot = msgspec.structs.replace(shop.snapshot, tenants=tenants)
    await shop.ask(headers=[(b"x-tiffin-priority", b"batch"), (b"x-tiffin-weight", b"900")])
    plain, flex, weighty = [call.headers for call in shop.backends[0].calls]
    assert b"x-tiffin-priority: interactive\r\n" in plain
    assert b"x-tiffin-priority: batch\r\n" in flex
    assert b"-weight" not in plain + flex
    assert b"x-tiffin-weight: 2.5\r\n" in weighty
    assert b"900" not in weighty
