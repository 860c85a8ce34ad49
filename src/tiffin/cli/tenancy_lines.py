"""What commands about tenants, keys and the audit log ask, and the lines that they print."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import typer

from tiffin.cli import locate

Json = dict[str, Any]
Row = tuple[str, ...]


def ask(
    method: str, path: str, body: Json | None = None, *, url: str, key: str, data: Path | None
) -> Json:
    """What the admin API answers; raises `Refused` and `Unreachable`."""
    address = locate.control(url=url, key=key, data=data)
    found: Json = address.call(method, path, body, timeout_s=30.0)
    return found


def ask_all(path: str, cursor: str, after: str, *, url: str, key: str, data: Path | None) -> Json:
    """All pages of a list behind a mark, as one; `cursor` is the field that marks go by."""
    found: list[Json] = []
    more = True
    while more:
        page = ask("GET", f"{path}?limit=1000&after={quote(after)}", url=url, key=key, data=data)
        found += page["data"]
        more = page["has_more"]
        after = str(found[-1][cursor]) if found else ""
    return {"data": found}


def show(answer: Json, rows: Iterable[Row], *, as_json: bool) -> None:
    """Print an answer as it came, or its rows in columns."""
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    table = [tuple(map(plain, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)] if table else []
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def plain(text: str) -> str:
    """A text without what would steer the terminal: some of it was given by clients."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def tenant_rows(found: list[Json]) -> Iterable[Row]:
    """A line for each tenant."""
    for one in found:
        state = "suspended" if one["suspended"] else _owner(one)
        yield one["name"], state, _limits(one["limits"])


def project_rows(found: list[Json]) -> Iterable[Row]:
    """A line for each project."""
    for one in found:
        yield one["name"], _owner(one), _limits(one["limits"])


def key_rows(found: list[Json]) -> Iterable[Row]:
    """A line for each key."""
    for one in found:
        begins = f"{one['begins']}…" if one["begins"] else ""
        yield one["name"], one["project"] or "-", one["role"], _state(one), begins, _scopes(one)


def entry_rows(found: list[Json]) -> Iterable[Row]:
    """A line for each entry of the audit log."""
    from datetime import UTC, datetime

    for one in found:
        at = datetime.fromtimestamp(one["at_ns"] // 1_000_000_000, UTC)
        when = at.strftime("%Y-%m-%d %H:%M:%S")
        what = one.get("what", "")
        yield str(one["n"]), when, one["by"], one["action"], what, one.get("outcome", "")


def verdict_of(noted: list[str], *, url: str, key: str, data: Path | None) -> Json:
    """What comes of checking the audit log, here or by the server that was named."""
    import msgspec

    from tiffin.cli.spellings import path_of
    from tiffin.control.audit.log import verify_files
    from tiffin.types.paths import audit_file, audit_head

    if url:
        if noted:
            raise typer.BadParameter("--head is for the files here; leave it out, or --url")
        return ask("GET", path_of("audit", "verify"), url=url, key=key, data=data)
    here = locate.folder(locate.configured(None, data).config, data)
    verdict = verify_files(audit_file(here), audit_head(here), *map(_head, noted))
    found: Json = msgspec.to_builtins(verdict)
    return found


def verdict_rows(verdict: Json) -> Iterable[Row]:
    """Whether it is intact, where it ends, and what was found."""
    head = verdict["head"]
    if verdict["intact"]:
        yield (f"intact: {verdict['lines']} lines",)
        yield (f"it ends with {head['n']}:{head['hash']}",)
    for one in verdict["findings"]:
        where = f"line {one['line']}: " if one["line"] else ""
        yield (f"! {where}{one['problem']}",)


def _head(text: str) -> Any:
    from tiffin.control.audit.chain import Head

    number, colon, hashed = text.partition(":")
    if not (colon and number.isdecimal() and len(hashed) == 64):
        raise typer.BadParameter("--head is NUMBER:HASH, as `tiffin audit verify` prints it")
    return Head(n=int(number), hash=hashed)


def _owner(one: Json) -> str:
    return "in the configuration" if one["source"] == "file" else f"by {one['made_by']}"


def _state(one: Json) -> str:
    if one["expired"]:
        return "expired"
    if one["expires"]:
        return f"until {one['expires']}"
    return "in the configuration" if one["source"] == "file" else "live"


def _scopes(one: Json) -> str:
    said = [f"{name}={','.join(one[name])}" for name in ("models", "endpoints") if one[name]]
    said += [f"{name}={one[name]}" for name in ("data_class", "region") if one[name]]
    if not one["tools"]:
        said.append("tools=no")
    if one["earlier_until"]:
        said.append(f"({one['earlier_begins']}… until {one['earlier_until']})")
    return " ".join([*said, *filter(None, [_limits(one["limits"])])])


def _limits(limits: Json) -> str:
    said = [f"{name}={value}" for name, value in limits.items() if value and name != "rules"]
    rules = limits.get("rules") or ()
    return " ".join([*said, *([f"rules={len(rules)}"] if rules else [])])
