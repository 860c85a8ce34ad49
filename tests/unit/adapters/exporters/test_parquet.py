"""Parquet that we write: columns have their types, amounts every digit, and pyarrow reads it."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tiffin.adapters.exporters.parquet import Kind, write
from tiffin.types.money import PICO, shown

COLUMNS = {
    "tenant": Kind.TEXT,
    "day": Kind.DAY,
    "requests": Kind.COUNT,
    "device_s": Kind.SECONDS,
    "amount": Kind.MONEY,
}


def row(amount: str = "1", day: str = "2026-04-01") -> dict[str, object]:
    return {"tenant": "acme", "day": day, "requests": 3, "device_s": 0.25, "amount": amount}


def test_columns_have_their_types_and_the_file_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "april.parquet"
    write(path, COLUMNS, [row(), row(day="")], {"since": "2026-04-01"})
    table = parquet.read_table(path)
    assert [field.type for field in table.schema] == [
        pa.string(),
        pa.date32(),
        pa.int64(),
        pa.float64(),
        pa.decimal128(38, 12),
    ]
    assert table.schema.metadata[b"since"] == b"2026-04-01"
    assert table["day"].null_count == 1
    assert [path.name for path in tmp_path.iterdir()] == ["april.parquet"]


@given(amounts=st.lists(st.integers(-(10**25), 10**25), max_size=20))
def test_amounts_are_read_back_to_the_last_unit(
    tmp_path_factory: pytest.TempPathFactory, amounts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("exact") / "x.parquet"
    write(path, COLUMNS, [row(shown(one, "").strip()) for one in amounts], {})
    found = parquet.read_table(path)["amount"].to_pylist()
    assert [one * PICO for one in found] == [Decimal(one) for one in amounts]


def test_what_cant_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"before")
    with pytest.raises(KeyError):
        write(path, COLUMNS, [{"tenant": "acme"}], {})
    assert path.read_bytes() == b"before"
    with pytest.raises(OSError, match="No such file"):
        write(tmp_path / "nowhere" / "x.parquet", COLUMNS, [row()], {})
