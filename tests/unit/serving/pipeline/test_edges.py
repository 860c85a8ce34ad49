"""Types of edges: how they are written, what fits, what may be joined."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.errors import ConfigInvalid
from tiffin.serving.pipeline.edges import EdgeType, edge_type, fits, joined, narrowed
from tiffin.types.tensors import DATATYPE_BYTES

SIZES = st.integers(-1, 4)
TYPES = st.builds(
    EdgeType,
    st.sampled_from(sorted(DATATYPE_BYTES)),
    st.lists(SIZES, max_size=3).map(tuple),
    st.booleans(),
)


@given(TYPES)
def test_a_type_is_read_as_it_is_written(kind: EdgeType) -> None:
    assert edge_type(str(kind)) == kind


def test_an_optional_input_is_marked() -> None:
    assert edge_type("UINT8[-1]?") == EdgeType("UINT8", (-1,), optional=True)


@pytest.mark.parametrize("text", ["", "FP32", "FP31[1]", "FP32[-2]", "FP32[1,]", "FP32[1]x"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        edge_type(text)


@given(TYPES, TYPES)
def test_fitting_is_mutual_and_what_is_narrowed_fits_both(one: EdgeType, other: EdgeType) -> None:
    assert fits(one, one)
    assert fits(one, other) == fits(other, one)
    if fits(one, other):
        both = narrowed(one, other)
        assert fits(both, one)
        assert fits(both, other)


@given(st.lists(TYPES, min_size=1, max_size=3))
def test_what_is_joined_fits_each_of_its_parts(types: list[EdgeType]) -> None:
    kind = joined(types)
    if kind is not None:
        assert all(fits(kind, part) for part in types)


def test_texts_and_numbers_are_not_joined() -> None:
    assert joined([EdgeType("BYTES", (1,)), EdgeType("FP32", (1,))]) is None
    assert joined([EdgeType("FP32", (2, 3)), EdgeType("FP32", (2, 4))]) is None
