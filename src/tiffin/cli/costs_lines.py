"""What commands about money ask, and the lines that they print."""

import json
import sys
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tiffin.cli import locate
from tiffin.cli.tables import write_parquet, write_rows
from tiffin.cli.tenancy_lines import ask, show
from tiffin.errors import ConfigInvalid

Json = dict[str, Any]
Row = tuple[str, ...]

_COSTS = "/admin/v1/costs"
_SHOWN = Decimal("0.0001")
_UNPRICED = """\
Nothing has a price, so all of this costs nothing. Say in the configuration what machines and
models cost ([[prices.machines]], [[prices.models]]; see docs/howto/costs.md), and give it to the
server with tiffin apply."""
_UNITS = ("input", "output", "device_second", "request", "row", "page", "audio_second")


def show_statement(
    asked: dict[str, str], form: str | Path, *, url: str, key: str, data: Path | None
) -> None:
    """Print a statement as `text`, `csv` or `json`, or write it to a Parquet file."""
    query = urlencode({name: value for name, value in asked.items() if value}, quote_via=quote)
    page = ask("GET", f"{_COSTS}/statement?{query}", url=url, key=key, data=data)
    rows = ({**row, "currency": page["currency"]} for row in page["data"])
    match form:
        case Path():
            about = {name: page[name] for name in ("since", "until", "total", "currency")}
            write_parquet(form, _columns(page), rows, about)
        case "json":
            print(json.dumps(page, indent=2))
        case "csv":
            write_rows(_columns(page), rows)
        case _:
            _write_text(page)
    if not page["priced"] and form != "json":
        print(f"\n{_UNPRICED}", file=sys.stderr)


def show_rates(*, url: str, key: str, data: Path | None, as_json: bool) -> None:
    """Print what use of models costs now."""
    page = ask("GET", f"{_COSTS}/rates", url=url, key=key, data=data)
    show(page, (_rate(one) for one in page["data"]), as_json=as_json)


def take_invoice(path: Path, name: str, *, url: str, key: str, data: Path | None) -> str:
    """Give an invoice to the server and say what became of it."""
    try:
        content = path.read_bytes()
    except OSError as cause:
        raise ConfigInvalid(f"can't be read: {cause.strerror}", where=str(path)) from cause
    address = locate.control(url=url, key=key, data=data)
    called = name or path.stem
    where = f"{_COSTS}/invoices?name={quote(called, safe='')}"
    done = address.send(where, content, {"Content-Type": "text/csv"}, timeout_s=60.0)
    if not done["new"]:
        return f"{called} was taken in before, and is left as it was."
    return f"{called}: {done['lines']} lines taken in; statements of that time reconcile with it."


def _columns(page: Json) -> list[str]:
    counts = ("requests", "successful", "prompt_tokens", "completion_tokens", "device_s")
    return [*page["by"], *counts, "marginal", "measured", "allocated", "amount", "currency"]


def _write_text(page: Json) -> None:
    currency = page["currency"]
    print(f"{page['since']} to {page['until']}, in {currency}")
    head = (*page["by"], "requests", "measured", "allocated", "amount")
    rows = [head, *(_cells(row, page["by"]) for row in page["data"])]
    show({}, rows, as_json=False)
    print()
    whole = "" if page["shown"] == page["total"] else f" of {page['total']}"
    print(f"sum {page['shown']}{whole} {currency}; the bill:")
    show({}, _bill(page), as_json=False)
    print(f"each successful request: {page['per_request']['formula']}")
    for fit in page["fits"]:
        print(
            f"time of {fit['model']} is allocated by a fit to {fit['rows']} sums, off by"
            f" {fit['error']:.1%}; microseconds a token: read {fit['prefill_us']:g},"
            f" cached {fit['cached_us']:g}, made {fit['decode_us']:g}"
        )
    for plan in page["plans"]:
        flag = "" if plan["profitable"] else "   ! it costs more than it brings"
        print(
            f"plan of {plan['tenant']}: charged {rounded(plan['charged'])},"
            f" costs {rounded(plan['cost'])}{flag}"
        )


def _bill(page: Json) -> Iterator[Row]:
    for item in page["bill"]:
        yield "", item["kind"], item["name"], rounded(item["amount"])


def _cells(row: Json, by: list[str]) -> Row:
    amounts = (rounded(row[name]) for name in ("measured", "allocated", "amount"))
    return (*(row[name] or "-" for name in by), str(row["requests"]), *amounts)


def _rate(one: Json) -> Row:
    told = ", ".join(f"{name} {one[name]}" for name in _UNITS if one[name] not in ("", "0"))
    if not one["currency"]:
        return one["model"], one["kind"], "no price"
    return one["model"], one["kind"], f"{told or 'nothing'} ({one['currency']})"


def rounded(amount: str) -> str:
    """An amount for people; the exact one is in the JSON and the CSV."""
    exact = Decimal(amount)
    short = exact.quantize(_SHOWN, ROUND_HALF_EVEN)
    return f"{short if short or not exact else exact:f}"
