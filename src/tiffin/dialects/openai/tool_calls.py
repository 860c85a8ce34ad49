"""Finding tool calls in a model's text while it comes.

A call is one JSON object with `name` (a tool of the request) and `arguments` (an object), in
`<tool_call>` tags (Qwen's and Hermes's template), in a fenced block, or bare at the beginning of
the answer; fences and bare text may also hold an array of them. Whatever only looks like a call
comes out as text, unchanged; white space next to a call is dropped.
"""

import re
from collections.abc import Collection
from typing import Final, Literal

import msgspec

TAG: Final = "<tool_call>"
TAG_END: Final = "</tool_call>"
FENCE: Final = "```"
FENCE_TAGS: Final = ("", "json", "tool_call", "tool_code")
MAX_DEPTH: Final = 64

# Where a call may begin: a marker's first character, with the white space before it.
_OPENING = re.compile(r"(?<!\s)(?:\s*+[<`{\[]|\s++\Z)")
_SPACE = re.compile(r"\s*")
_SPECIAL = re.compile(r'["\\{}\[\]]')
# What a value must look like to become a call, as far as it has come.
_FIRST_KEY = re.compile(r'(?:\[\s*)?\{\s*"([^"\\]*)"')
_NOT_A_CALL = re.compile(r'\[\s*[^\s{]|(?:\[\s*)?\{\s*[^\s"]')
_NAME = re.compile(r'(?:\[\s*)?\{\s*"name"\s*:\s*(?:"([^"\\]*)"|[^\s"])')


class Call(msgspec.Struct, frozen=True):
    """A call of a tool: `arguments` is the JSON text of an object."""

    name: str
    arguments: str


class _Written(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


Found = str | Call
_Verdict = Literal["more", "text", "read"]


class ToolCallParser:
    """Takes an answer's text in any pieces and gives text and calls, the same however it was cut.

    Text that can't be the start of a call comes out at once. `only_first` drops everything after
    the first call.
    """

    def __init__(self, tools: Collection[str], *, only_first: bool = False) -> None:
        self._tools = tools
        self._only_first = only_first
        self._held = ""
        self._bare = True  # nothing but white space since the beginning or the last call
        self._line_start = True
        self._within = ""  # what closes the tag or fence that the last calls stand in
        self._closing = ""  # the same, right after a call
        self._value: _Value | None = None
        self.calls = 0

    def feed(self, text: str) -> list[Found]:
        """What this text decides, in order."""
        self._held += text
        return self._read(final=False)

    def finish(self) -> list[Found]:
        """The rest: what was held back as the start of a call is text after all."""
        return self._read(final=True)

    def _read(self, *, final: bool) -> list[Found]:
        found: list[Found] = []
        while self._held:
            if self._only_first and self.calls:
                self._held = ""
            elif self._closing:
                if not self._close(final=final):
                    break
            else:
                verdict = self._next(found)
                if verdict == "more":
                    if not final:
                        break
                    self._give_up(found)
                elif verdict == "text":
                    self._give_up(found)
        return _joined(found)

    def _close(self, *, final: bool) -> bool:
        """Swallow the closing marker after a call; false where more text must decide."""
        after = self._held.lstrip()
        if after.startswith(self._closing):
            self._held = after[len(self._closing) :]
            self._within = ""
        elif self._closing.startswith(after) and not final:
            return False
        self._closing = ""
        return True

    def _next(self, found: list[Found]) -> _Verdict:
        """Emit what is surely text; then judge what may be a call at the start of the rest."""
        opening = _OPENING.search(self._held)
        before = opening.start() if opening else len(self._held)
        if before:
            self._emit(found, before)
        if opening is None:
            return "read"
        verdict, start, closing = self._judge_start()
        if verdict != "read":
            return verdict
        if self._value is None:
            self._value = _Value(start)
        return self._judge_value(found, self._value, closing)

    def _judge_start(self) -> tuple[_Verdict, int, str]:
        """Whether a JSON value begins here as a call would; where; and what would close it."""
        held = self._held
        mark = len(held) - len(held.lstrip())
        rest = held[mark:]
        if not rest:
            return "more", 0, ""
        if rest[0] in "{[":
            return ("read" if self._bare else "text"), mark, ""
        if rest[0] == "<":
            if rest.startswith(TAG):
                return _value_after(held, mark + len(TAG), TAG_END)
            return ("more" if TAG.startswith(rest) else "text"), 0, ""
        if self._line_start or "\n" in held[:mark]:
            return _judge_fence(held, mark)
        return "text", 0, ""

    def _judge_value(self, found: list[Found], value: "_Value", closing: str) -> _Verdict:
        held = self._held
        if not value.plausible(held, self._tools):
            return "text"
        end = value.end(held)
        if end is None:
            return "text" if value.too_deep else "more"
        calls = _calls(held[value.start : end], self._tools)
        if calls is None:
            return "text"
        found.extend(calls[:1] if self._only_first else calls)
        self.calls += len(calls)
        self._held = held[end:]
        self._value = None
        self._closing = self._within = closing or self._within
        self._bare = self._line_start = True
        return "read"

    def _give_up(self, found: list[Found]) -> None:
        """What is held doesn't begin a call: its white space and first character are text."""
        self._value = None
        space = _SPACE.match(self._held)
        width = space.end() if space else 0
        if width == len(self._held) and self._bare and self.calls:
            self._held = ""
            return
        self._emit(found, min(width + 1, len(self._held)))

    def _emit(self, found: list[Found], width: int) -> None:
        text, self._held = self._held[:width], self._held[width:]
        found.append(text)
        if not text.isspace():
            self._bare = False
            self._within = ""
        last_line = text.rpartition("\n")
        self._line_start = (bool(last_line[1]) or self._line_start) and not last_line[2].strip()


class _Value:
    """A JSON value in text that grows: finds its end without reading anything twice."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.too_deep = False
        self._at = start
        self._depth = 0
        self._in_string = False
        self._known = False

    def plausible(self, text: str, tools: Collection[str]) -> bool:
        """False once it is sure that this doesn't become a call of one of `tools`."""
        if self._known:
            return True
        if _NOT_A_CALL.match(text, self.start):
            return False
        key = _FIRST_KEY.match(text, self.start)
        if key is None:
            return True
        if key[1] == "arguments":
            self._known = True
        elif key[1] != "name":
            return False
        elif name := _NAME.match(text, self.start):
            self._known = name[1] in tools
            return self._known
        return True

    def end(self, text: str) -> int | None:
        """Where the value ends in `text`, or None where it hasn't yet."""
        at = self._at
        while (special := _SPECIAL.search(text, at)) is not None:
            at = special.end()
            mark = special[0]
            if mark == "\\" and self._in_string:
                if at == len(text):
                    self._at = at - 1
                    return None
                at += 1
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string and mark != "\\":
                self._depth += 1 if mark in "{[" else -1
                if self._depth == 0:
                    return at
                if self._depth > MAX_DEPTH:
                    self.too_deep = True
                    return None
        self._at = len(text)
        return None


def _judge_fence(held: str, mark: int) -> tuple[_Verdict, int, str]:
    """Judge a fenced block that may open at `mark`, where a line's text begins."""
    rest = held[mark:]
    tag, newline, _ = rest[len(FENCE) :].partition("\n")
    if newline and rest.startswith(FENCE) and tag.rstrip() in FENCE_TAGS:
        return _value_after(held, mark + len(FENCE) + len(tag) + 1, FENCE)
    partial = not newline and any((FENCE + tag).startswith(rest.rstrip()) for tag in FENCE_TAGS)
    return ("more" if partial else "text"), 0, ""


def _value_after(held: str, at: int, closing: str) -> tuple[_Verdict, int, str]:
    """Judge what comes after an opening marker that ends at `at`."""
    space = _SPACE.match(held, at)
    start = space.end() if space else at
    if start == len(held):
        return "more", 0, ""
    return ("read" if held[start] in "{[" else "text"), start, closing


def _calls(text: str, tools: Collection[str]) -> list[Call] | None:
    """The calls that a complete value is, or None where it is something else."""
    source = text if text[0] == "[" else f"[{text}]"
    try:
        written = msgspec.json.decode(source, type=list[_Written])
        calls = [Call(one.name, _object_text(one.arguments)) for one in written]
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return calls if calls and all(call.name in tools for call in calls) else None


def _object_text(raw: msgspec.Raw) -> str:
    """Arguments as the text of a JSON object; some models write that text as a string."""
    text = bytes(raw).decode()
    if text.startswith('"'):
        text = msgspec.json.decode(text, type=str)
    msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return text


def _joined(found: list[Found]) -> list[Found]:
    """Neighbouring texts as one."""
    joined: list[Found] = []
    for one in found:
        if isinstance(one, str) and joined and isinstance(joined[-1], str):
            joined[-1] += one
        else:
            joined.append(one)
    return joined
