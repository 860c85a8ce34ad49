"""The keys that were made through the admin API, by hash: read from the keyring in bounded slices.

A look-up is one of a dictionary, and gives a value that never changes: whoever has a principal
keeps it, whatever is read meanwhile.
"""

from typing import Final

from tiffin.types.keyring import MAX_LINE_BYTES, Damaged, Head, Heard, hear, read_head
from tiffin.types.snapshot import Principal

SLICE_LINES: Final = 200
"""How many lines are read without letting anything else run: about a millisecond's work."""


class Keyring:
    """Principals by the hex sha256 of their keys.

    `whole` is whether all that there was when it was looked for has been read: until then a key
    that isn't here may still be one of ours. `fault` says why the file can't be read, or is empty.
    """

    __slots__ = ("fault", "keys", "whole")

    def __init__(self) -> None:
        self.keys: dict[str, Principal] = {}
        self.whole = True
        self.fault = ""


class RingReader:
    """Reads one file of the ring, from its head on, into a dictionary.

    A broken line ends the reading for good: what follows it can't be told from what doesn't.
    """

    __slots__ = ("_left", "keys", "offset", "serial")

    def __init__(self) -> None:
        self.keys: dict[str, Principal] = {}
        self.offset = 0
        self.serial = 0
        self._left = 0

    def begin(self, head: Head, head_bytes: int) -> None:
        """Start behind the head, with nothing read."""
        self.offset = head_bytes
        self.serial = head.serial
        self._left = head.lines

    def go_on(self, head: Head, head_bytes: int) -> None:
        """Start behind what a file says of the past, which is what is known here already."""
        self.offset = head_bytes + head.bytes
        self._left = 0

    def feed(self, chunk: bytes) -> int:
        """Take whole lines from what stands at `offset`, no more than a slice; returns how many.

        Raises `Damaged`.
        """
        start = taken = 0
        while taken < SLICE_LINES:
            end = chunk.find(b"\n", start)
            if end < 0:
                if start == 0 and len(chunk) >= MAX_LINE_BYTES:
                    raise Damaged("a line has no end")
                break
            self._take(hear(chunk[start:end]))
            start = end + 1
            taken += 1
        self.offset += start
        return taken

    def _take(self, line: Heard) -> None:
        # The past is numbered from 1 upwards, so that its last line is the one with no other left.
        if self._left:
            self._left -= 1
        elif line.n != self.serial + 1:
            raise Damaged(f"line {self.serial + 1} is missing, {line.n} stands there")
        else:
            self.serial = line.n
        if line.secret is not None and line.do == "secret":
            self.keys[line.secret.digest] = line.secret.principal
        elif line.digest:
            self.keys.pop(line.digest, None)


def head_of(chunk: bytes) -> tuple[Head, int] | None:
    """The head that a file begins with and its length, or none while it isn't whole."""
    end = chunk.find(b"\n")
    return (read_head(chunk[:end]), end + 1) if end >= 0 else None
