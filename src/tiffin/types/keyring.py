"""The keyring's file: what was made through the admin API, as lines that are only ever appended.

The first line is a `Head`. After it come `lines` lines that say all that there was at `serial`, in
`bytes` bytes, numbered from 1; and then changes, numbered from `serial` + 1. Each is
`<crc32 of the JSON as 8 hex digits> <JSON>\n`. Who has read a file of the same `epoch` up to
`serial` goes on behind those bytes. No line holds a key: secrets are there as sha256 alone.
"""

from typing import Literal, TypeVar
from zlib import crc32

import msgspec

from tiffin.types.budgets import Budget
from tiffin.types.snapshot import Limits, Principal

FORMAT = 1
MAX_LINE_BYTES = 262_144

Done = Literal["tenant", "project", "drop_project", "secret", "drop_secret"]

T = TypeVar("T")


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first line; another `epoch` has nothing to do with what was read before."""

    ring: int = FORMAT
    epoch: str
    serial: int
    lines: int
    bytes: int


class MadeTenant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A tenant of the API's. Its name stays taken when it was `closed`: its accounts have it."""

    name: str
    limits: Limits = Limits()
    budgets: dict[str, Budget] = {}
    weight: float = 1.0
    suspended: bool = False
    closed: bool = False
    made_ns: int = 0
    made_by: str = ""


class MadeProject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A project of the API's, in a tenant of whoever's."""

    tenant: str
    name: str
    limits: Limits = Limits()
    budgets: dict[str, Budget] = {}
    made_ns: int = 0
    made_by: str = ""


class Secret(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One secret of a key, and all that the key may do; a key that is rotated has two for a while.

    `shown` is the beginning of the secret, to recognise it by.
    """

    digest: str
    principal: Principal
    shown: str = ""
    made_ns: int = 0
    made_by: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line: what is so from now on, or what isn't there any more."""

    n: int = 0
    do: Done
    tenant: MadeTenant | None = None
    project: MadeProject | None = None
    secret: Secret | None = None
    digest: str = ""


class _HeardSecret(msgspec.Struct, frozen=True, gc=False):
    digest: str
    principal: Principal


class Heard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """As much of a line as a gateway needs, whatever else newer versions write."""

    n: int
    do: str
    secret: _HeardSecret | None = None
    digest: str = ""


class Damaged(Exception):
    """A line isn't what was written; the message says what it is instead."""


_encode = msgspec.json.Encoder().encode
_head = msgspec.json.Decoder(Head)
_line = msgspec.json.Decoder(Line)
_heard = msgspec.json.Decoder(Heard)


def spelled(value: Head | Line) -> bytes:
    """A value as a line, newline included."""
    text = _encode(value)
    return b"%08x %b\n" % (crc32(text), text)


def read_head(line: bytes) -> Head:
    """The first line without its newline; raises `Damaged`."""
    head = _read(line, _head)
    if head.ring > FORMAT:
        raise Damaged(f"its format {head.ring} is of a newer Tiffin")
    return head


def read_line(line: bytes) -> Line:
    """Any other line without its newline; raises `Damaged`."""
    return _read(line, _line)


def hear(line: bytes) -> Heard:
    """What a gateway needs of it; raises `Damaged`."""
    return _read(line, _heard)


def _read(line: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    text = line[9:]
    if line[:9] != b"%08x " % crc32(text):
        raise Damaged("a line doesn't have its checksum")
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Damaged(f"a line can't be understood: {error}") from error
