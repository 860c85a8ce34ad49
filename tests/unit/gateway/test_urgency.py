"""How urgent a request is: by its header, else by its dialect's own field."""

from typing import cast

import pytest

from tiffin.dialects.dialect import Asked
from tiffin.errors import InvalidRequest
from tiffin.gateway.urgency import is_batch
from tiffin.testing.exchange import FakeExchange


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
