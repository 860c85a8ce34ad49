"""What executes a language model inside a replica.

Contract:
- `load` returns when the runtime can take requests, or raises `LoadFailed` with the reason.
- `prepare` does everything that can refuse a request before it queues: template, tokens, context,
  parameters, schema. It raises an `InvalidRequest` that names the parameter.
- `start` begins work on entering its context and **stops it on leaving**, however it is left:
  finished, broken off, cancelled. It always yields deltas; the last one carries `finish` and
  `usage`.
- No more `start`s run at once than `capabilities.slots`; the replica's queue sees to it.
- `slot` numbers a lane of the engine's memory; `reuse_prefix` is false where the lane's last
  tenant was another one, and then nothing that the lane remembers may be used.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from tiffin.types.text import ChatRequest, CompletionRequest, Message, Tool
from tiffin.types.usage import Usage


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a loaded model can do. `context_tokens` is what one slot really has."""

    context_tokens: int
    slots: int
    tools: bool = False
    chat: bool = True


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One generated token's log-probability and its strongest rivals (natural logarithm)."""

    token: str
    token_bytes: list[int]
    logprob: float
    top: list["TokenLogprob"] = []


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A step of an answer: text (may be empty), and at the end `finish` and `usage`.

    `finish` is `stop` or `length`. `tokens` counts generated tokens in this step.
    """

    text: str = ""
    tokens: int = 0
    logprobs: list[TokenLogprob] | None = None
    finish: str | None = None
    usage: Usage | None = None


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was checked and turned into tokens: ready to queue.

    `sampling` is the runtime's own; `answer_tokens` is the most that the answer may have.
    `text` is the prompt as text where the request gave text (needed by `echo` of completions).
    """

    tokens: list[int]
    answer_tokens: int
    sampling: dict[str, Any]
    text: str = ""
    tool_names: list[str] = []


class TextRuntime(Protocol):
    """A language model in this process."""

    async def load(self) -> Capabilities:
        """Make the model ready; raises `LoadFailed` or `ArtifactError`."""
        ...

    async def prepare(self, request: ChatRequest | CompletionRequest) -> list[Prompt]:
        """Check a request and turn it into one prompt (completions may give several)."""
        ...

    def start(
        self, prompt: Prompt, *, slot: int, sample: int, reuse_prefix: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Generate; `sample` numbers the choices of `n` (seed + sample where a seed is given)."""
        ...

    async def tokenize(
        self,
        *,
        text: str | None,
        messages: list[Message] | None,
        tools: list[Tool] | None,
        special: bool,
    ) -> list[int]:
        """The ids of a text, or of messages after the chat template."""
        ...

    async def detokenize(self, tokens: list[int]) -> str:
        """The text of ids."""
        ...

    async def close(self) -> None:
        """Give everything back; idempotent."""
        ...
