"""Tables as Parquet, through pyarrow: every column has one type, and amounts of money are exact."""

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

DIGITS, PLACES = 38, 12
"""Amounts are decimal numbers of units of their currency, with all twelve places."""


class Kind(Enum):
    """What a column holds: `DAY` a date or nothing, `MONEY` an amount as decimal text."""

    TEXT = pa.string()
    COUNT = pa.int64()
    SECONDS = pa.float64()
    DAY = pa.date32()
    MONEY = pa.decimal128(DIGITS, PLACES)


def write(
    path: Path,
    columns: Mapping[str, Kind],
    rows: Sequence[Mapping[str, Any]],
    about: Mapping[str, str],
) -> None:
    """Write rows as a file, whole or not at all; `about` is told in its schema's metadata.

    Raises `OSError` where it can't be written.
    """
    schema = pa.schema([(name, kind.value) for name, kind in columns.items()], dict(about))
    arrays = [
        pa.array([_value(kind, row[name]) for row in rows], kind.value)
        for name, kind in columns.items()
    ]
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            parquet.write_table(pa.table(arrays, schema=schema), file)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _value(kind: Kind, value: Any) -> Any:
    match kind:
        case Kind.MONEY:
            return Decimal(value)
        case Kind.DAY:
            return date.fromisoformat(value) if value else None
    return value
