"""Configurations for a running server: given to it, tried out, looked up and taken back."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tiffin.cli.connect import Address
from tiffin.config.load import load_text
from tiffin.errors import ConfigInvalid

# A server may have to wait for programs that print keys.
TIMEOUT_S = 60.0

Json = dict[str, Any]

_MARKS = {"added": "+", "removed": "-", "changed": "~"}


def text_of(path: Path) -> Json:
    """What a server is to be given; raises `ConfigInvalid` before anything is sent."""
    try:
        text = path.read_bytes()
    except OSError as cause:
        raise ConfigInvalid(f"can't be read: {cause.strerror}", where=str(path)) from cause
    load_text(text, source=str(path))
    return {"toml": text.decode("utf-8-sig")}


def applied(address: Address, wanted: Json) -> Iterator[str]:
    """Give it to the server and say what that did; raises `Refused`."""
    done = address.call("POST", "/admin/v1/config", wanted, timeout_s=TIMEOUT_S)
    yield f"Applied as snapshot {done['number']}, sha256 {done['config_hash']}."
    yield from (f"  changed: {name}" for name in done["changed"])
    yield from (f"  takes effect at the next start: {name}" for name in done["restart"])


def previewed(address: Address, wanted: Json) -> Iterator[str]:
    """Say what giving it to the server would do; raises `Refused`."""
    found = address.call("POST", "/admin/v1/config/preview", wanted, timeout_s=TIMEOUT_S)
    changes = found["changes"]
    if not changes:
        yield "It is what is in force; nothing would change."
        return
    notes = dict.fromkeys(found["restart"], "at the next start")
    notes |= dict.fromkeys(found["tighter"], "tighter")
    section = ""
    for change in changes:
        first, _, rest = change["path"].partition(".")
        if first != section:
            section = first
            yield f"[{section}]"
        yield f"  {_MARKS[change['kind']]} {rest or first}{_values(change)}{_note(notes, change)}"
    gone = [path for path in found["tighter"] if path not in {one["path"] for one in changes}]
    yield from (f"  ! {path} would let nothing through any more" for path in gone)
    yield from _moves(found["models"])
    yield "Nothing was changed."


def remembered(address: Address) -> Iterator[str]:
    """The configurations that were in force, the newest first; raises `Refused`."""
    for one in address.call("GET", "/admin/v1/config/history")["data"]:
        when = datetime.fromtimestamp(one["at_ns"] // 1_000_000_000, UTC).isoformat(sep=" ")
        mark = "in force" if one["in_force"] else ""
        row = (f"{one['number']:>5}", when[:19], one["sha256"][:12], f"{one['by']:<24}", mark)
        yield "  ".join(row).rstrip()


def _values(change: Json) -> str:
    was, now = (json.dumps(change[name], ensure_ascii=False) for name in ("was", "now"))
    if change["kind"] == "changed":
        return f": {was} → {now}"
    value = now if change["kind"] == "added" else was
    return "" if value == "{}" else f" = {value}"


def _note(notes: dict[str, str], change: Json) -> str:
    note = notes.get(change["path"], "")
    return f"  ({note})" if note else ""


def _moves(moves: list[Json]) -> Iterator[str]:
    if moves:
        yield "models"
    for move in moves:
        why = f" ({move['why']})" if move["why"] else ""
        yield f"  {move['model']} {move['what']}{why}"
