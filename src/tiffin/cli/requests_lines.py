"""What `tiffin requests` asks, and the lines that it prints."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from tiffin.cli.connect import Unreachable
from tiffin.cli.costs_lines import rounded
from tiffin.cli.tenancy_lines import Row, plain, show
from tiffin.errors import NotFound

Json = dict[str, Any]

PATH: Final = "/admin/v1/accounts"
FOLLOW_EVERY_S: Final = 0.5
AT_ONCE: Final = 1000
_PICO: Final = Decimal(10) ** -12
_WIDTHS: Final = (8, 10, 18, 16, 28, 9, 9, 13, 12)
_HEADS: Final = ("ended", "outcome", "who", "model", "why", "took", "first", "tokens", "cost", "id")


Look = Callable[[str], Json]
"""What the admin API answers to a path; raises `Refused` and `Unreachable`."""


def show_requests(asked: Json, limit: int, look: Look, *, follow: bool, as_json: bool) -> None:
    """Print the newest of those that are asked for, and then, to `follow`, whatever comes."""
    found = look(_path(asked | {"limit": limit}))["data"]
    if not as_json:
        print(_line(_HEADS))
    _print(found, as_json=as_json)
    seen = found[0]["seq"] if found else 0
    while follow:
        time.sleep(FOLLOW_EVERY_S)
        with suppress(Unreachable):  # it starts anew, perhaps
            new = _since(asked, seen, look)
            _print(new, as_json=as_json)
            seen = new[0]["seq"] if new else seen


def show_request(identifier: str, look: Look, *, as_json: bool) -> None:
    """Print everything that is known of one; raises `NotFound`."""
    page = look(_path({"id": identifier}))
    if not page["data"]:
        raise NotFound(
            f"there is no request '{identifier}'; those that ended long ago, or not yet, aren't"
            " shown: tiffin requests list"
        )
    [one] = page["data"]
    show(one, [*_facts(one), *_tries(one)], as_json=as_json)


def _since(asked: Json, seen: int, look: Look) -> list[Json]:
    """All that came after an entry, newest first."""
    found: list[Json] = []
    more: Json = {}
    while True:
        page = look(_path(asked | more | {"after": seen, "limit": AT_ONCE}))
        found += page["data"]
        if not page["has_more"]:
            return found
        more = {"before": found[-1]["seq"]}


def _path(query: Json) -> str:
    return f"{PATH}?{urlencode(query)}"


def _print(found: list[Json], *, as_json: bool) -> None:
    """Oldest first."""
    for one in reversed(found):
        print(json.dumps(one) if as_json else _line(_cells(one)), flush=True)


def _line(cells: Row) -> str:
    """Columns of a fixed width, as what comes later isn't known yet."""
    *some, last = map(plain, cells)
    return "  ".join([*(c.ljust(w) for c, w in zip(some, _WIDTHS, strict=True)), last])


def _cells(one: Json) -> Row:
    why = one["error"] or (f"cache: {one['cache']}" if one["cache"] not in ("", "miss") else "-")
    used = one["prompt_tokens"], one["completion_tokens"]
    return (
        _moment(one["closed_ns"])[11:19],
        one["outcome"],
        f"{one['tenant']}/{one['key']}",
        one["model"] or "-",
        why,
        _ms(one["duration_ns"]),
        _ms(one["ttft_ns"]) if one["ttft_ns"] else "-",
        f"{used[0]} → {used[1]}" if any(used) else f"{one['rows']} rows" if one["rows"] else "-",
        _money(one["cost_pico"], one["currency"]),
        one["id"],
    )


def _facts(one: Json) -> Iterator[Row]:
    """What is known of it, a line for each thing; nothing that it doesn't have."""
    who = "/".join(filter(None, (one["tenant"], one["project"], one["key"])))
    result = f"{one['outcome']}, {one['status']} {one['error']}".rstrip()
    model = "@".join(filter(None, (one["model"], one["revision"])))
    yield "request", one["id"]
    yield "asked", f"{_moment(one['opened_ns'])} by {who} for {one['endpoint']}"
    known = (
        ("end user", "end_user"),
        ("tag", "tag"),
        ("trace", "trace_id"),
        ("theirs", "client_id"),
    )
    yield from ((name, one[field]) for name, field in known if one[field])
    yield "outcome", result
    if model:
        yield "model", f"{model} (configuration {one['snapshot']})"
    if one["cache"]:
        kept = f", {one['kept_inputs']} inputs were kept" if one["kept_inputs"] else ""
        yield "cache", one["cache"] + kept
    yield "time", _times(one)
    if used := _used(one):
        yield "used", used
    if one["currency"]:
        loss = one["loss_pico"]
        lost = f", and {_money(loss, one['currency'])} for what nobody got" if loss else ""
        yield "cost", f"{_money(one['cost_pico'], one['currency'])}{lost}"


def _times(one: Json) -> str:
    """The whole, and the parts of it that were measured."""
    parts = (
        ("until the first of the answer", "ttft_ns"),
        ("waiting for a slot", "queue_ns"),
        ("preparing", "prepare_ns"),
        ("computing", "device_ns"),
        ("in tries before the last", "retried_ns"),
    )
    told = [f"{_ms(one[field])} {name}" for name, field in parts if one[field]]
    return f"{_ms(one['duration_ns'])}" + (f": {', '.join(told)}" if told else "")


def _used(one: Json) -> str:
    counts = (
        ("tokens in", "prompt_tokens"),
        ("of them cached", "cached_tokens"),
        ("tokens out", "completion_tokens"),
        ("of them reasoning", "reasoning_tokens"),
        ("rows", "rows"),
        ("pages", "pages"),
        ("pixels", "pixels"),
        ("ms of sound", "audio_ms"),
    )
    told = ", ".join(f"{one[field]} {name}" for name, field in counts if one[field])
    return told if one["measured"] or not told else f"{told} (counted here)"


def _tries(one: Json) -> Iterator[Row]:
    for each in one["attempts"]:
        began = _ms(each["started_ns"] - one["opened_ns"])
        lasted = _ms(each["ended_ns"] - each["started_ns"])
        placed = f", placed by {each['placed']}" if each.get("placed") else ""
        result = each.get("error") or "answered"
        status = f" ({each['status']})" if each.get("status") else ""
        yield (
            f"try {each['n']}",
            f"{each['target']}: {result}{status} after {lasted}, begun at {began}{placed}",
        )


def _moment(at_ns: int) -> str:
    at = datetime.fromtimestamp(at_ns / 1e9, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _ms(nanoseconds: int) -> str:
    ms = nanoseconds / 1e6
    return f"{ms / 1000:.1f} s" if ms >= 10_000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def _money(pico: int, currency: str) -> str:
    return f"{rounded(str(pico * _PICO))} {currency}" if currency else "-"
