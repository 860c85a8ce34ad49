"""`multipart/form-data` as parts of the body that stay where they are (RFC 7578, RFC 2046 §5.1)."""

from typing import NamedTuple

from python_multipart.multipart import parse_options_header

from tiffin.errors import MalformedBody

MAX_PARTS = 64
MAX_HEADER_BYTES = 8_192
MAX_BOUNDARY = 70
# What looks like a boundary and goes on otherwise is content; so much of it is an attack.
MAX_NEAR_MISSES = 1_000

_FORM = b"multipart/form-data"


class FormPart(NamedTuple):
    """One field: its name, its file's name if it is a file, and where in the body its value is."""

    name: str
    filename: str | None
    start: int
    end: int


def read_form(content_type: bytes | None, body: bytes) -> list[FormPart]:
    """The fields of a form in their order; raises `MalformedBody`."""
    kind, options = parse_options_header(content_type)
    if kind.lower() != _FORM:
        raise MalformedBody("the body must be a form: content-type multipart/form-data")
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= MAX_BOUNDARY:
        raise MalformedBody("the content-type has no boundary of 1 to 70 characters")
    return list(_Scan(body, b"--" + boundary).parts())


class _Scan:
    """A way through the body, from one delimiter to the next."""

    def __init__(self, body: bytes, delimiter: bytes) -> None:
        self._body = body
        self._opening = delimiter
        self._delimiter = b"\r\n" + delimiter
        self._near_misses = 0

    def parts(self) -> list[FormPart]:
        body = self._body
        found: list[FormPart] = []
        if body.startswith(self._opening):
            at = len(self._opening)
        else:
            first = body.find(self._delimiter)
            if first < 0:
                raise MalformedBody("the form doesn't have its boundary")
            at = first + len(self._delimiter)
        while not body.startswith(b"--", at):
            if len(found) == MAX_PARTS:
                raise MalformedBody(f"the form has more than {MAX_PARTS} parts")
            headers = self._line_end(at)
            # A part without headers begins with the empty line at once.
            value = body.find(b"\r\n\r\n", headers - 2, headers + MAX_HEADER_BYTES)
            if value < 0:
                raise MalformedBody(f"a part's headers don't end within {MAX_HEADER_BYTES} bytes")
            start = value + 4
            # The line break before a delimiter may be the one that ended the headers.
            end = self._delimiter_from(start - 2)
            found.append(_part(body[headers:value], start, max(start, end)))
            at = end + len(self._delimiter)
        return found

    def _line_end(self, at: int) -> int:
        """Where the line of a delimiter ends; only blanks may stand before that."""
        end = self._body.find(b"\r\n", at, at + 256)
        if end < 0 or self._body[at:end].strip(b" \t"):
            raise MalformedBody("a boundary of the form isn't the end of its line")
        return end + 2

    def _delimiter_from(self, at: int) -> int:
        body = self._body
        while True:
            at = body.find(self._delimiter, at)
            if at < 0:
                raise MalformedBody("the form ends inside a part")
            after = at + len(self._delimiter)
            if body.startswith((b"--", b"\r\n", b" ", b"\t"), after):
                return at
            at = after
            self._near_misses += 1
            if self._near_misses > MAX_NEAR_MISSES:
                raise MalformedBody("the form's content is full of its boundary")


def _part(headers: bytes, start: int, end: int) -> FormPart:
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            kind, options = parse_options_header(value.strip())
            if kind.lower() == b"form-data" and b"name" in options:
                filename = options.get(b"filename")
                return FormPart(
                    options[b"name"].decode("utf-8", "replace"),
                    None if filename is None else filename.decode("utf-8", "replace"),
                    start,
                    end,
                )
    raise MalformedBody("a part of the form has no name in its content-disposition")
