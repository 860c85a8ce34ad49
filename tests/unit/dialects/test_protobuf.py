"""Our reading and writing of protocol buffers against the generated messages of Triton's client."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb  # type: ignore[import-untyped]

from tiffin.dialects.oip import protobuf_messages as ours
from tiffin.dialects.oip.protobuf import MAX_ITEMS, read, write
from tiffin.errors import MalformedBody

PAIRS = [
    (pb.ServerLiveResponse, ours.Flag),
    (pb.ServerReadyResponse, ours.Flag),
    (pb.ModelReadyRequest, ours.NamedModel),
    (pb.ModelReadyResponse, ours.Flag),
    (pb.ServerMetadataResponse, ours.ServerTold),
    (pb.ModelMetadataRequest, ours.NamedModel),
    (pb.ModelMetadataResponse, ours.ModelTold),
    (pb.ModelInferRequest, ours.InferCall),
    (pb.ModelInferResponse, ours.InferReply),
    (pb.ModelStreamInferResponse, ours.StreamReply),
    (pb.RepositoryIndexRequest, ours.IndexCall),
    (pb.RepositoryIndexResponse, ours.IndexReply),
    (pb.RepositoryModelLoadRequest, ours.SwitchCall),
    (pb.RepositoryModelUnloadRequest, ours.SwitchCall),
]

NUMBERS: dict[int, Any] = {
    1: st.floats(),
    2: st.floats(width=32),
    3: st.integers(-(2**63), 2**63 - 1),
    4: st.integers(0, 2**64 - 1),
    5: st.integers(-(2**31), 2**31 - 1),
    8: st.booleans(),
    9: st.text(max_size=20),
    12: st.binary(max_size=40),
    13: st.integers(0, 2**32 - 1),
}
"""What a field of a type may have, by the type's number in a descriptor."""


def fill(message: Message, draw: Any) -> None:
    """Give some of a message's fields some values."""
    for field in message.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in draw(st.lists(st.text(max_size=5), max_size=2)):
                fill(getattr(message, name)[key], draw)
        elif field.message_type is not None and field.is_repeated:
            for _ in range(draw(st.integers(0, 2))):
                fill(getattr(message, name).add(), draw)
        elif field.message_type is not None:
            getattr(message, name).SetInParent()
            fill(getattr(message, name), draw)
        elif field.is_repeated:
            getattr(message, name).extend(draw(st.lists(NUMBERS[field.type], max_size=4)))
        else:
            setattr(message, name, draw(NUMBERS[field.type]))


@st.composite
def filled(draw: Any) -> tuple[Message, Any]:
    """A message of theirs with values, and our kind of it."""
    theirs, kind = draw(st.sampled_from(PAIRS))
    message = theirs()
    fill(message, draw)
    return message, kind


def canonical(message: Message) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


@given(filled())
def test_what_they_write_we_read_and_what_we_write_they_read(pair: tuple[Message, Any]) -> None:
    message, kind = pair
    again = type(message).FromString(write(read(kind, message.SerializeToString())))
    assert canonical(again) == canonical(message)


@given(filled(), st.data())
def test_damaged_bytes_are_refused_or_read_as_they_read_them(
    pair: tuple[Message, Any], data: st.DataObject
) -> None:
    message, kind = pair
    bytes_ = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(bytes_)))
        bytes_[at : at + 1] = data.draw(st.binary(max_size=3))
    try:
        ours_ = read(kind, bytes(bytes_))
    except MalformedBody:
        return
    try:
        theirs = type(message).FromString(bytes(bytes_))
    except DecodeError:
        return
    theirs.DiscardUnknownFields()
    assert canonical(type(message).FromString(write(ours_))) == canonical(theirs)


@given(st.binary(max_size=60), st.sampled_from([kind for _, kind in PAIRS]))
def test_any_bytes_are_read_or_refused(data: bytes, kind: Any) -> None:
    try:
        read(kind, data)
    except MalformedBody:
        return


def test_numbers_that_are_not_packed_count_too() -> None:
    tensor = read(ours.Tensor, b"\x18\x02\x18\x03")
    assert tensor.shape == [2, 3]
    contents = read(ours.Contents, b"\x35\x00\x00\x80\x3f\x35\x00\x00\x00\x40")
    assert contents.fp32_contents == b"\x00\x00\x80\x3f\x00\x00\x00\x40"


def test_a_message_given_twice_is_one() -> None:
    first = pb.ModelStreamInferResponse(infer_response={"model_name": "a"})
    second = pb.ModelStreamInferResponse(infer_response={"id": "b"})
    both = first.SerializeToString() + second.SerializeToString()
    found = read(ours.StreamReply, both).infer_response
    assert found == ours.InferReply(model_name="a", id="b")


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05a", b"\xff" * 11, b"\x00\x00", b"\x0b\x0c", b"\x0a\x01\xff"],
    ids=["no length", "cut", "long number", "field 0", "group", "not UTF-8"],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedBody):
        read(ours.NamedModel, data)


def test_a_message_of_too_many_parts_is_refused() -> None:
    small = b"\x2a\x00" * (MAX_ITEMS + 1)
    with pytest.raises(MalformedBody, match="parts"):
        read(ours.InferCall, small)
    ones = bytes([0x1A, *_length(MAX_ITEMS + 1)]) + b"\x01" * (MAX_ITEMS + 1)
    with pytest.raises(MalformedBody, match="raw"):
        read(ours.Tensor, ones)


def _length(value: int) -> list[int]:
    return [value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14]
