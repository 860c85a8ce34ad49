"""From messages to tokens through the model's own chat template, and from text to tokens."""

import re
import secrets
from typing import Any, Final

import msgspec

from tiffin.adapters.runtimes.engine import Line
from tiffin.adapters.runtimes.gguf import Vocabulary
from tiffin.errors import ContextLengthExceeded, InvalidRequest, RunFailed
from tiffin.types.text import Message, Tool

_NOTHING: Final = re.compile(r"(?!)")


class _Prompt(msgspec.Struct):
    prompt: str


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Content(msgspec.Struct):
    content: str


class Template:
    """Turns what clients say into tokens; nothing that they say counts as the template's own words.

    A text that spells one of the model's control tokens, such as `<|im_end|>`, reaches the model as
    these characters: it is swapped for a random word before the template is filled in, and that
    word for the characters' own tokens afterwards.
    """

    def __init__(self, line: Line, vocabulary: Vocabulary, context: int) -> None:
        self._line = line
        self._context = context
        self._longest = vocabulary.longest
        self._control = sorted(vocabulary.control, key=lambda text: (-len(text), text))
        either = "|".join(map(re.escape, self._control))
        self._steering = re.compile(either) if either else _NOTHING
        self._plain: dict[str, list[int]] = {}

    async def chat(self, messages: list[Message], tools: list[Tool]) -> list[int]:
        """The tokens of a conversation up to where the model's next answer begins.

        Raises `InvalidRequest` where the template can't render it.
        """
        veil = _Veil(self._control, self._steering)
        spoken = [_spoken(message) for message in messages]
        offered = msgspec.to_builtins(tools)
        self.refuse_too_long(sum(map(_characters, messages)), "messages")
        question = {"messages": veil.over(spoken)}
        if offered:
            question["tools"] = veil.over(offered)
        try:
            filled = await self._line.ask("/apply-template", question, _Prompt)
        except (InvalidRequest, RunFailed) as error:
            raise InvalidRequest(
                f"the model's chat template can't render these messages: {error.message}",
                param="messages",
            ) from error
        pieces: list[str | int] = []
        for text, steering in veil.lift(filled.prompt):
            pieces.append(text)
            if steering is not None:
                pieces += await self._as_plain_text(steering)
        return await self._tokens(pieces, special=True, control=True)

    async def text(self, text: str, *, special: bool, param: str) -> list[int]:
        """The tokens of a text as it is, with the model's opening token where `special`."""
        self.refuse_too_long(len(text), param)
        return await self._tokens(text, special=special, control=True)

    async def spell(self, tokens: list[int]) -> str:
        """The text of tokens."""
        answer = await self._line.ask("/detokenize", {"tokens": tokens}, _Content)
        return answer.content

    def refuse_too_long(self, characters: int, param: str) -> None:
        """Refuse what can't fit even if every token were the longest, before reading it."""
        least = characters // self._longest
        if least >= self._context:
            raise ContextLengthExceeded(
                f"this model's context is {self._context} tokens, but '{param}' has at least"
                f" {least}",
                param=param,
            )

    async def _as_plain_text(self, steering: str) -> list[int]:
        tokens = self._plain.get(steering)
        if tokens is None:
            tokens = await self._tokens(steering, special=False, control=False)
            self._plain[steering] = tokens
        return tokens

    async def _tokens(
        self, content: str | list[str | int], *, special: bool, control: bool
    ) -> list[int]:
        question = {"content": content, "add_special": special, "parse_special": control}
        return (await self._line.ask("/tokenize", question, _Tokens)).tokens


class _Veil:
    """One request's random words, each standing for one control token's text."""

    def __init__(self, control: list[str], steering: re.Pattern[str]) -> None:
        self._control = control
        self._steering = steering
        self._word = f"v{secrets.token_hex(8)}v"
        self._words = {text: f"{self._word}{at}v" for at, text in enumerate(control)}

    def over(self, value: Any) -> Any:
        """The value with every such text in it swapped for its word."""
        if isinstance(value, str):
            return self._steering.sub(lambda found: self._words[found[0]], value)
        if isinstance(value, list):
            return [self.over(one) for one in value]
        if isinstance(value, dict):
            return {self.over(key): self.over(one) for key, one in value.items()}
        return value

    def lift(self, text: str) -> list[tuple[str, str | None]]:
        """The text cut at the words, each piece with the control token's text that followed it."""
        parts = re.split(rf"{self._word}(\d+)v", text)
        followed = [self._control[int(at)] for at in parts[1::2]]
        return list(zip(parts[0::2], [*followed, None], strict=True))


def _spoken(message: Message) -> dict[str, Any]:
    """A message as templates expect it: text content, roles that they know."""
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text or "" for part in content)
    role = "system" if message.role == "developer" else message.role
    turn: dict[str, Any] = {"role": role, "content": content or ""}
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": _unescaped(call.function.arguments),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn


def _characters(message: Message) -> int:
    """How many characters the template certainly puts into the prompt."""
    if isinstance(message.content, list):
        return sum(len(part.text or "") for part in message.content)
    return len(message.content or "")


def _unescaped(arguments: str) -> str:
    """JSON text without escapes that a template would undo after we looked for control tokens."""
    if "\\" not in arguments:
        return arguments
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments)).decode()
    except (msgspec.DecodeError, RecursionError):
        return arguments
