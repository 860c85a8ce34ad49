"""Forms of any content come apart where they were put together, and broken ones are refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiffin.dialects.forms import MAX_NEAR_MISSES, MAX_PARTS, read_form
from tiffin.errors import MalformedBody

TYPE = b"multipart/form-data; boundary=B"
NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters='"\\\r\n', exclude_categories=["C"]),
    min_size=1,
    max_size=8,
)
VALUES = st.one_of(
    st.binary(max_size=40),
    st.lists(
        st.sampled_from([b"\r\n", b"--B", b"-", b"\r", b"x", b"\r\n--", b"\n"]), max_size=8
    ).map(b"".join),
).filter(lambda value: b"\r\n--B" not in b"\r\n" + value)


def form(fields: list[tuple[str, bytes]], boundary: bytes = b"B") -> bytes:
    parts = b"".join(
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
        % (boundary, name.encode(), value)
        for name, value in fields
    )
    return parts + b"--%b--\r\n" % boundary


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_what_was_put_together_comes_apart(fields: list[tuple[str, bytes]]) -> None:
    body = form(fields)
    assert [(p.name, body[p.start : p.end]) for p in read_form(TYPE, body)] == fields


def test_a_preamble_and_a_files_name() -> None:
    body = (
        b"ignored\r\n--B  \r\n"
        b"Content-Type: audio/wav\r\n"
        b'content-disposition: form-data; name="file"; filename="a b.wav"'
        b"\r\n\r\nRIFF\r\n--B--\r\nignored"
    )
    [part] = read_form(b'Multipart/Form-Data; boundary="B"', body)
    assert (part.name, part.filename, body[part.start : part.end]) == ("file", "a b.wav", b"RIFF")


def test_an_empty_value_may_share_its_line_break() -> None:
    body = b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\n--B--\r\n'
    [part] = read_form(TYPE, body)
    assert part.start == part.end


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_form_or_refused(body: bytes) -> None:
    for text in (body, b"--B\r\n" + body, form([("a", b"b")])[:-8] + body):
        try:
            parts = read_form(TYPE, text)
        except MalformedBody:
            continue
        assert all(0 <= part.start <= part.end <= len(text) for part in parts)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (None, b""),
        (b"application/json", b"{}"),
        (b"multipart/form-data", form([])),
        (b"multipart/form-data; boundary=" + b"x" * 71, form([], b"x" * 71)),
        (TYPE, b""),
        (TYPE, b"--B\r\nContent-Disposition: form-data; name=a\r\n\r\ncut off"),
        (TYPE, b"--B\r\n\r\nno headers\r\n--B--"),
        (TYPE, b"--B\r\nX: " + b"y" * 9000 + b"\r\n\r\n\r\n--B--"),
        (TYPE, form([("a", b"")] * (MAX_PARTS + 1))),
        (TYPE, form([("a", b"\r\n--BX" * (MAX_NEAR_MISSES + 1))])),
    ],
)
def test_what_is_no_form_is_refused(content_type: bytes | None, body: bytes) -> None:
    with pytest.raises(MalformedBody):
        read_form(content_type, body)
