"""What `tiffin budgets` and `tiffin usage` ask, and the lines that they print."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tiffin.cli.costs_lines import rounded
from tiffin.cli.tables import write_parquet, write_rows
from tiffin.cli.tenancy_lines import ask, show

Json = dict[str, Any]
Row = tuple[str, ...]

_BUDGET = (
    *("tenant", "project", "key", "name", "per", "hard", "since", "until", "currency"),
    *("amount", "spent", "reserved", "left", "percent", "state"),
)
_FORECAST = ("outlook", "expected", "earliest", "latest", "by_end")
_USAGE = (
    *("requests", "successful", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("rows", "pages", "audio_s", "cost"),
)


def show_budgets(tenant: str, form: str, *, url: str, key: str, data: Path | None) -> None:
    """Print budgets as `text`, `csv` or `json`."""
    query = f"?tenant={quote(tenant, safe='')}" if tenant else ""
    page = ask("GET", f"/admin/v1/budgets{query}", url=url, key=key, data=data)
    if form == "json":
        print(json.dumps(page, indent=2))
    elif form == "csv":
        rows = [{**one, **one["forecast"]} for one in page["data"]]
        write_rows((*_BUDGET, *_FORECAST), rows)
    elif page["data"]:
        head = ("budget", "per", "spent", "of", "left", "share", "state", "forecast")
        show({}, [head, *map(_budget, page["data"])], as_json=False)
    else:
        print("There are no budgets; the configuration has them beside limits.")


def show_usage(
    asked: dict[str, str], form: str | Path, *, url: str, key: str, data: Path | None
) -> None:
    """Print usage as `text`, `csv` or `json`, or write it to a Parquet file."""
    query = urlencode({name: value for name, value in asked.items() if value}, quote_via=quote)
    page = ask("GET", f"/admin/v1/usage?{query}", url=url, key=key, data=data)
    columns = (*page["by"], *_USAGE, "currency")
    rows = ({**one, "currency": page["currency"]} for one in page["data"])
    match form:
        case Path():
            write_parquet(form, columns, rows, {name: page[name] for name in ("since", "until")})
        case "json":
            print(json.dumps(page, indent=2))
        case "csv":
            write_rows(columns, rows)
        case _:
            print(f"{page['since']} to {page['until']}, in {page['currency']}")
            show({}, _usage_rows(page), as_json=False)
    if page["has_more"] and form not in ("csv", "json"):
        print("… and more; ask for less at once")


def _usage_rows(page: Json) -> Iterator[Row]:
    yield (*page["by"], "requests", "input", "output", "pages", "cost")
    for row in page["data"]:
        counts = (row["requests"], row["prompt_tokens"], row["completion_tokens"], row["pages"])
        yield (*(row[name] or "-" for name in page["by"]), *map(str, counts), rounded(row["cost"]))


def _budget(one: Json) -> Row:
    holder = "/".join(filter(None, (one["tenant"], one["project"], one["key"])))
    kind = "hard" if one["hard"] else "soft"
    amounts = (rounded(one["spent"]), f"{one['amount']} {one['currency']}", rounded(one["left"]))
    share = f"{one['percent']:g} %"
    return (
        f"{holder}: {one['name']} ({kind})",
        one["per"],
        *amounts,
        share,
        one["state"],
        _forecast(one["forecast"]),
    )


def _forecast(one: Json) -> str:
    match one["outlook"]:
        case "unknown":
            return f"not enough history ({one['hours']} h)"
        case "runs out":
            until = one["latest"] or "not at all"
            return f"runs out at {one['expected']} ({one['earliest']} to {until})"
        case "lasts":
            maybe = f"; runs out at {one['earliest']} at the earliest" if one["earliest"] else ""
            return f"lasts: {rounded(one['by_end'])} by its end{maybe}"
    return ""
