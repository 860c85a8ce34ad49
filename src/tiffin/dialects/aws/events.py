"""AWS's binary event stream: messages with headers and a payload, each guarded by two checksums.

A message is its length, its headers' length, a CRC of these, headers, payload, and a CRC of it all;
numbers are big-endian.
"""

import struct
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from tiffin.errors import UpstreamFailed

MAX_MESSAGE: Final = 16_777_216 + 131_072
_HEAD: Final = Struct(">III")
_CRC: Final = Struct(">I")
_LENGTH: Final = Struct(">H")
_STRING: Final = 7
_BYTES: Final = 6
_FIXED: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""How many bytes a header's value of another type has."""


class Message(NamedTuple):
    """One message; of its headers those that are texts."""

    headers: dict[str, str]
    payload: bytes


class Messages:
    """Finds messages in what comes; raises `UpstreamFailed` for what is none."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def inside(self) -> bool:
        """Whether a part of a message is there that isn't whole yet."""
        return bool(self._data)

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole with this."""
        self._data += data
        while len(self._data) >= _HEAD.size:
            length, headers, crc = _HEAD.unpack_from(self._data)
            if crc != crc32(self._data[:8]):
                raise UpstreamFailed("the answer's event stream is damaged")
            if not _HEAD.size + headers + _CRC.size <= length <= MAX_MESSAGE:
                raise UpstreamFailed("the answer's event stream has a message of no such length")
            if len(self._data) < length:
                return
            whole = bytes(self._data[:length])
            del self._data[:length]
            yield _message(whole, headers)


def _message(whole: bytes, headers: int) -> Message:
    body, (crc,) = whole[: -_CRC.size], _CRC.unpack_from(whole, len(whole) - _CRC.size)
    if crc != crc32(body):
        raise UpstreamFailed("the answer's event stream is damaged")
    start = _HEAD.size + headers
    return Message(dict(_texts(body[_HEAD.size : start])), body[start:])


def _texts(data: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    try:
        while at < len(data):
            size = data[at]
            name = data[at + 1 : at + 1 + size].decode()
            kind = data[at + 1 + size]
            at += 2 + size
            if kind in (_STRING, _BYTES):
                (size,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size
                if kind == _STRING:
                    yield name, data[at : at + size].decode()
            else:
                size = _FIXED[kind]
            at += size
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise UpstreamFailed("the answer's event stream has headers that are none") from error
    if at != len(data):
        raise UpstreamFailed("the answer's event stream has headers that are none")
