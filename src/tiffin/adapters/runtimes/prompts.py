"""From requests to prompts, the same for every engine: template, tokens, room in the context.

The questions that need the model's vocabulary go to llama.cpp over `Line`, whichever engine answers
the prompt then: so its tokens are the same under each.
"""

from typing import Any

import msgspec

from tiffin.adapters.runtimes.engine import Line
from tiffin.adapters.runtimes.gguf import Vocabulary
from tiffin.adapters.runtimes.sampling import COMPLETION_TOKENS, offered_tools, wanted_rivals
from tiffin.adapters.runtimes.template import Template
from tiffin.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    SchemaViolation,
    UnsupportedParameter,
)
from tiffin.ports.text_runtime import Capabilities, Prompt
from tiffin.types.text import ChatRequest, CompletionRequest, Message, Tool


class _Settings(msgspec.Struct, frozen=True):
    n_ctx: int


class _Abilities(msgspec.Struct, frozen=True):
    supports_tools: bool = False


class Properties(msgspec.Struct, frozen=True):
    """What llama.cpp says of the model that it loaded."""

    default_generation_settings: _Settings
    chat_template_caps: _Abilities = _Abilities()


class Prompts:
    """One model's requests to prompts; raises an `InvalidRequest` that names the parameter."""

    def __init__(self, line: Line, vocabulary: Vocabulary, capabilities: Capabilities) -> None:
        self._vocabulary = vocabulary
        self._capabilities = capabilities
        self._template = Template(line, vocabulary, capabilities.context_tokens)

    async def of_chat(self, request: ChatRequest, sampling: dict[str, Any]) -> Prompt:
        """The prompt of a conversation that `check_chat` let pass."""
        tools = offered_tools(request)
        tokens = await self._template.chat(request.messages, tools)
        names = [tool.function.name for tool in tools]
        return self._prompt(tokens, request, sampling, tool_names=names)

    async def of_completion(
        self, request: CompletionRequest, sampling: dict[str, Any]
    ) -> list[Prompt]:
        """A prompt for each that the request has."""
        return [
            self._prompt(tokens, request, sampling, text)
            for text, tokens in await self._read_prompts(request)
        ]

    def check_chat(self, messages: list[Message], tools: list[Tool] | None) -> None:
        """Refuse what no template here can say: messages at all, or tools."""
        if not self._capabilities.chat:
            raise InvalidRequest(
                "this model has no chat template; use /v1/completions", param="messages"
            )
        if self._capabilities.tools:
            return
        if tools:
            raise _no_tools("tools")
        for index, message in enumerate(messages):
            if message.role == "tool":
                raise _no_tools(f"messages[{index}].role")
            if message.tool_calls:
                raise _no_tools(f"messages[{index}].tool_calls")

    async def messages(self, messages: list[Message], tools: list[Tool] | None) -> list[int]:
        """The tokens of messages after the chat template."""
        self.check_chat(messages, tools)
        return await self._template.chat(messages, tools or [])

    async def text(self, text: str, *, special: bool) -> list[int]:
        """The tokens of a text as it is, with the model's opening token where `special`."""
        return await self._template.text(text, special=special, param="prompt")

    async def spell(self, tokens: list[int]) -> str:
        """The text of ids that a client gave; what isn't whole characters shows as U+FFFD."""
        self._check_tokens(tokens, "tokens")
        return await self._template.spell(tokens)

    async def spell_known(self, tokens: list[int]) -> str:
        """The text of the model's own tokens."""
        return await self._template.spell(tokens)

    async def _read_prompts(self, request: CompletionRequest) -> list[tuple[str, list[int]]]:
        """Every prompt as text (where it is known or must be) and as tokens."""
        prompt = request.prompt
        if isinstance(prompt, str) or isinstance(prompt[0], int):
            prompts: list[Any] = [prompt]
        else:
            prompts = prompt
        read = []
        for one in prompts:
            if isinstance(one, str):
                text = one
                tokens = await self._template.text(text, special=True, param="prompt")
            else:
                self._check_tokens(one, "prompt")
                tokens = one
                text = await self._template.spell(tokens) if request.echo else ""
            read.append((text, tokens))
        return read

    def _prompt(
        self,
        tokens: list[int],
        request: ChatRequest | CompletionRequest,
        sampling: dict[str, Any],
        text: str = "",
        tool_names: list[str] | None = None,
    ) -> Prompt:
        return Prompt(
            tokens=tokens,
            answer_tokens=answer_room(request, len(tokens), self._capabilities.context_tokens),
            sampling={**sampling, "rivals": wanted_rivals(request)},
            text=text,
            tool_names=tool_names or [],
        )

    def _check_tokens(self, tokens: list[int], param: str) -> None:
        if tokens and max(tokens) >= self._vocabulary.size:
            raise SchemaViolation(
                f"'{param}' has token {max(tokens)}, but this model's last is"
                f" {self._vocabulary.size - 1}",
                param=param,
            )


def answer_room(
    request: ChatRequest | CompletionRequest,
    prompt_tokens: int,
    context: int,
    *,
    exact: bool = True,
) -> int:
    """How many tokens the answer may have: those asked for, else what the context leaves.

    Raises `SchemaViolation` for an empty prompt, `ContextLengthExceeded` where both don't fit;
    not that where the prompt's size isn't `exact`.
    """
    chat = isinstance(request, ChatRequest)
    param = "messages" if chat else "prompt"
    if not prompt_tokens:
        raise SchemaViolation(f"'{param}' has no tokens", param=param)
    left = context - prompt_tokens
    wanted = wanted_tokens(request)
    if exact and left < (wanted or 1):
        asked = f" and {wanted} tokens of answer were asked for" if wanted else ""
        raise ContextLengthExceeded(
            f"this model's context is {context} tokens, but '{param}' has {prompt_tokens}{asked};"
            " prompt and answer must fit it together",
            param=param,
        )
    return wanted or max(1, left if chat else min(left, COMPLETION_TOKENS))


def wanted_tokens(request: ChatRequest | CompletionRequest) -> int | None:
    """The most tokens of answer that a request asks for, None where it leaves that open."""
    wanted = request.max_completion_tokens if isinstance(request, ChatRequest) else None
    return wanted or request.max_tokens


def _no_tools(param: str) -> UnsupportedParameter:
    return UnsupportedParameter(f"'{param}' is not supported: this model has no tools", param=param)
