"""Rows of an answer as CSV on the terminal, or as a Parquet file."""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tiffin.errors import ConfigInvalid

Json = dict[str, Any]

_COUNTS = (
    *("requests", "successful", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("rows", "pages"),
)
_MONEY = ("marginal", "measured", "allocated", "amount", "cost")


def write_rows(columns: Sequence[str], rows: Iterable[Json]) -> None:
    """Print rows as CSV, with these columns."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(columns)
    for row in rows:
        out.writerow([_inert(row[name]) for name in columns])


def write_parquet(
    path: Path, columns: Sequence[str], rows: Iterable[Json], about: Mapping[str, str]
) -> None:
    """Write rows as a Parquet file, with these columns and what they are `about`; say so."""
    if find_spec("pyarrow") is None:
        raise ConfigInvalid("it needs more: pip install 'tiffin[parquet]'", where="--parquet")
    from tiffin.adapters.exporters.parquet import Kind, write

    def kind(name: str) -> Kind:
        if name in _COUNTS:
            return Kind.COUNT
        if name in _MONEY:
            return Kind.MONEY
        return {"device_s": Kind.SECONDS, "audio_s": Kind.SECONDS, "day": Kind.DAY}.get(
            name, Kind.TEXT
        )

    table = list(rows)
    try:
        write(path, {name: kind(name) for name in columns}, table, about)
    except OSError as cause:
        reason = cause.strerror or type(cause).__name__
        raise ConfigInvalid(f"can't be written: {reason}", where=str(path)) from cause
    print(f"Wrote {len(table)} rows to {path}")


def _inert(value: Any) -> Any:
    """Text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "@") else value
