"""The audit log's lines as a chain: each has the hash of the one before, so none can be changed.

A line is `<sha256 of the JSON, in hexadecimal> <JSON>\n`, and the JSON has the hash of the line
before it. Where the log ends (`Head`) is kept elsewhere too: that is how lines that were cut off at
the end are missed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import msgspec

BEGINNING: Final = "0" * 64
BROKEN: Final = "audit.broken"
"""The action that says: when control started, the log didn't end as it had ended before."""
MAX_FINDINGS: Final = 100

_HASH = 64


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change by an admin: when (UTC), who, what, to which thing, between which states.

    `before` and `after` are digests of its state, empty where it wasn't there, or isn't any more.
    `outcome` is empty, or says that the change wasn't made after all.
    """

    n: int
    at_ns: int
    by: str
    role: str = ""
    action: str
    what: str = ""
    before: str = ""
    after: str = ""
    outcome: str = ""
    prev: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last line: its number and its hash; 0 and zeros where there is none yet."""

    n: int = 0
    hash: str = BEGINNING


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that isn't as it was written; `line` counts from 1, 0 is the log as a whole."""

    line: int
    problem: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of checking a log: it is `intact` where nothing was found."""

    intact: bool
    lines: int
    head: Head
    findings: list[Finding] = []


_decoder = msgspec.json.Decoder(Entry)
_encode = msgspec.json.Encoder().encode


def digest(state: Any) -> str:
    """The digest of a thing's state: the sha256 of its JSON with sorted keys."""
    return sha256(msgspec.json.encode(state, order="sorted")).hexdigest()


def linked(entry: Entry) -> tuple[bytes, Head]:
    """An entry as its line, and where the log ends with it."""
    text = _encode(entry)
    hashed = sha256(text).hexdigest()
    return b"%b %b\n" % (hashed.encode(), text), Head(n=entry.n, hash=hashed)


def read(line: bytes) -> tuple[Entry, Head] | None:
    """The entry of a line without its newline, and its place; none where it was changed."""
    text = line[_HASH + 1 :]
    hashed = sha256(text).hexdigest()
    if line[: _HASH + 1] != b"%b " % hashed.encode():
        return None
    try:
        entry = _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return entry, Head(n=entry.n, hash=hashed)


@dataclass(slots=True)
class Check:
    """Follows a chain line by line and keeps what is wrong with it, the first hundred."""

    findings: list[Finding] = field(default_factory=list)
    last: Head = field(default_factory=Head)
    lines: int = 0
    _seen: dict[int, str] = field(default_factory=dict)
    _wanted: frozenset[int] = frozenset()

    def expect(self, heads: Iterable[Head]) -> "Check":
        """Remember the hashes of lines with these numbers, for `end`."""
        self._wanted = frozenset(head.n for head in heads)
        return self

    def take(self, line: bytes) -> None:
        """The next line, without its newline."""
        self.lines += 1
        found = read(line)
        if found is None:
            self._find("this line was changed")
            self.last = Head(n=self.last.n + 1, hash="")
            return
        entry, place = found
        if entry.n != self.last.n + 1:
            self._find(_gap(self.last.n + 1, entry.n))
        elif entry.prev != self.last.hash and self.last.hash:
            self._find(f"line {self.last.n} before it isn't the one that was there")
        if entry.action == BROKEN:
            self._find(f"when this was written, the log had lost what it had before: {entry.what}")
        if entry.n in self._wanted:
            self._seen[entry.n] = place.hash
        self.last = place

    def end(self, *heads: Head) -> Verdict:
        """The verdict, given where the log ended when it was last written, by one or more words."""
        for head in dict.fromkeys(heads):
            if head.n and head.n > self.last.n:
                problem = f"it ends with entry {self.last.n}, and there were {head.n}"
                self.findings.append(Finding(line=0, problem=problem))
            elif head.n and self._seen.get(head.n) != head.hash:
                problem = f"entry {head.n} isn't the one that was written"
                self.findings.append(Finding(line=0, problem=problem))
        return Verdict(
            intact=not self.findings, lines=self.lines, head=self.last, findings=self.findings
        )

    def _find(self, problem: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(line=self.lines, problem=problem))


def verify(lines: Iterable[bytes], *heads: Head) -> Verdict:
    """Whether lines are as they were written, and end where the heads say that they end.

    A head that isn't the last is one that others noted earlier: its line must still be there.
    """
    check = Check().expect(heads)
    for line in lines:
        check.take(line)
    return check.end(*heads)


def _gap(expected: int, found: int) -> str:
    if found > expected:
        return f"entry {expected} is missing before it, {found} stands here"
    return f"entry {found} stands here again or out of order, {expected} was to come"
