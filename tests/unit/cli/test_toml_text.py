"""A tree that is written as TOML is the same when it is read."""

import tomllib
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tiffin.cli.toml_text import toml_text

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
plain = texts | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(-1e9, 1e9)
values = plain | st.lists(plain, max_size=3) | st.just(datetime(2027, 1, 31, 18, tzinfo=UTC))
sections = st.recursive(
    st.dictionaries(texts, values, min_size=1, max_size=3),
    lambda inner: st.dictionaries(
        texts, values | inner | st.lists(inner, min_size=1, max_size=3), min_size=1, max_size=3
    ),
    max_leaves=12,
)


@given(sections)
def test_any_tree_comes_back(tree: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(tree)) == tree
