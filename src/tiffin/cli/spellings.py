"""Limits, times and names as they are typed on a command line, to what the admin API takes."""

import re
import tomllib
from datetime import UTC, datetime, timedelta
from typing import Any

import typer

_LENGTH = re.compile(r"(\d+)\s*(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def limits_of(text: str) -> dict[str, Any]:
    """`requests_per_minute = 60, concurrency = 2`, as in the configuration's braces."""
    try:
        found: dict[str, Any] = tomllib.loads(f"limits = {{ {text} }}")["limits"]
    except ValueError as cause:
        raise typer.BadParameter(
            f"expected such as 'requests_per_minute = 60, concurrency = 2': {cause}"
        ) from cause
    return found


def seconds_of(text: str) -> int:
    """`90d`, `24h`, `30m`, `10s` or `0` as seconds."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None and text.strip() != "0":
        raise typer.BadParameter(f"expected such as 90d, 24h, 30m or 0, not '{text}'")
    return int(found[1]) * _UNITS[found[2]] if found else 0


def moment_of(text: str, now: datetime | None = None) -> str:
    """A date and time with its zone as it is, or a length from now on (`90d`)."""
    if _LENGTH.fullmatch(text.strip()):
        moment = (now or datetime.now(UTC)) + timedelta(seconds=seconds_of(text))
        return moment.isoformat(timespec="seconds")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as cause:
        raise typer.BadParameter(f"expected such as 2027-01-31T18:00:00Z or 90d: {cause}") from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"'{text}' has no zone; write it as {text}Z for UTC")
    return moment.isoformat()


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: those that aren't are none, empty texts and empty lists."""
    return {name: value for name, value in options.items() if value not in (None, "", [])}


def path_of(*parts: str) -> str:
    """A path of the admin API with these names in it."""
    from urllib.parse import quote

    return "/admin/v1/" + "/".join(quote(part, safe="") for part in parts)
