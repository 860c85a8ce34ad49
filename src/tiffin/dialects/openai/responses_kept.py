"""The bodies of `/v1/responses/{id}` and of what lies below it."""

from urllib.parse import parse_qsl

import msgspec

from tiffin.dialects.faults import shown
from tiffin.errors import SchemaViolation, UnknownParameter, UnsupportedParameter
from tiffin.ports.conversations import Kept

MAX_LIMIT = 100
DEFAULT_LIMIT = 20


class _Item(msgspec.Struct):
    id: str


_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_ITEM = msgspec.json.Decoder(_Item)


def refuse_query(query: bytes) -> None:
    """Raise for any parameter of a response's own address: it has none that ask for anything."""
    for name, value in _pairs(query):
        if name == "stream" and value == "false":
            continue
        if name in ("include", "include[]", "include_obfuscation", "starting_after", "stream"):
            raise UnsupportedParameter(f"'{name}' is not supported here", param=name)
        raise _unknown(name)


def deleted_body(name: str) -> bytes:
    """What is said of a response that was let go."""
    return msgspec.json.encode({"id": name, "object": "response", "deleted": True})


def items_body(kept: Kept, query: bytes) -> bytes:
    """A page of the items that a response answered; raises `SchemaViolation` for a bad query.

    `order` is `desc` (the newest first) unless `asc` is asked for; `after` is an item's id.
    """
    limit, order, after = DEFAULT_LIMIT, "desc", None
    for name, value in _pairs(query):
        match name:
            case "limit":
                limit = _limit(value)
            case "order":
                order = _order(value)
            case "after":
                after = value
            case "include" | "include[]":
                raise UnsupportedParameter(f"'{name}' is not supported here", param=name)
            case _:
                raise _unknown(name)
    items = _ITEMS.decode(kept.items)
    names = [_ITEM.decode(item).id for item in items]
    if order == "desc":
        items.reverse()
        names.reverse()
    start = 0
    if after is not None:
        if after not in names:
            raise SchemaViolation(f"there is no item '{shown(after)}' here", param="after")
        start = names.index(after) + 1
    names = names[start:]
    page, of_page = items[start : start + limit], names[:limit]
    return msgspec.json.encode(
        {
            "object": "list",
            "data": page,
            "first_id": of_page[0] if of_page else None,
            "last_id": of_page[-1] if of_page else None,
            "has_more": len(names) > limit,
        }
    )


def _limit(value: str) -> int:
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= MAX_LIMIT):
        raise SchemaViolation(
            f"'limit' must be 1 to {MAX_LIMIT}, not '{shown(value)}'", param="limit"
        )
    return int(value[:9])


def _order(value: str) -> str:
    if value not in ("asc", "desc"):
        raise SchemaViolation(f"'order' must be asc or desc, not '{shown(value)}'", param="order")
    return value


def _pairs(query: bytes) -> list[tuple[str, str]]:
    return parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True)


def _unknown(name: str) -> UnknownParameter:
    return UnknownParameter(f"there is no parameter '{shown(name)}' here", param=shown(name))
