"""Server-sent events cut out of a stream's bytes, however those were cut.

(html.spec.whatwg.org, 9.2.6; our own streams are read by `dialects.openai.usage`.)
"""

MAX_EVENT_BYTES = 1_048_576


class Events:
    """Collects bytes and gives whole events, each without the blank line that ends it.

    Raises `ValueError` where one is over `MAX_EVENT_BYTES`.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that these bytes complete; `b""` gives what is left at the stream's end."""
        if not data:
            left, self._rest = self._rest.strip(b"\r\n"), b""
            return [_with_lf(left)] if left else []
        whole = self._rest + data
        if b"\r" in whole:
            held = whole.endswith(b"\r")  # its line feed may be in the next bytes
            whole = _with_lf(whole[:-1] if held else whole) + (b"\r" if held else b"")
        *events, self._rest = whole.split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError(f"an event is over {MAX_EVENT_BYTES} bytes")
        return [event for event in (one.strip(b"\n") for one in events) if event]


def payload_of(event: bytes) -> bytes:
    """The data lines of an event, joined; comments and other fields are skipped."""
    values = []
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            values.append(value.removeprefix(b" "))
    return b"\n".join(values)


def _with_lf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
