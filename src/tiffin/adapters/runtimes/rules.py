"""Answers by rules, for where no model is needed, or none is left."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from unicodedata import category

import msgspec

from tiffin.adapters.runtimes import byte_tokens
from tiffin.adapters.runtimes.sampling import COMPLETION_TOKENS, demand
from tiffin.adapters.runtimes.schema import Grammars
from tiffin.config.models import RulesModel
from tiffin.errors import ContextLengthExceeded, SchemaViolation, UnsupportedParameter
from tiffin.ports.text_runtime import Capabilities, Delta, Prompt
from tiffin.types.snapshot import Deployment
from tiffin.types.text import ChatRequest, CompletionRequest
from tiffin.types.usage import Usage

_STEPS: Final = re.compile(r"\S+\s*|\s+")


class RulesRuntime(byte_tokens.Tokenizing):
    """Satisfies `ports.text_runtime.TextRuntime`; a token is a byte of UTF-8."""

    def __init__(self, deployment: Deployment) -> None:
        self._spec = msgspec.json.decode(deployment.spec, type=RulesModel)
        self._rules = [(_words(" ".join(one.words)), one.answer) for one in self._spec.rules]

    async def load(self) -> Capabilities:
        """There is nothing to load. It may be offered tools, which it never calls."""
        return Capabilities(context_tokens=self._spec.context, slots=self._spec.slots, tools=True)

    async def prepare(self, request: ChatRequest | CompletionRequest) -> list[Prompt]:
        """One prompt a text, each with what is said to it; raises `UnsupportedParameter` where the
        answer must be of a form that this one isn't."""
        if request.logprobs:
            raise UnsupportedParameter("answers by rules have no probabilities", param="logprobs")
        if isinstance(request, CompletionRequest):
            texts = byte_tokens.prompts(request.prompt)
            return [
                self._prompt(request, given, self.answer(byte_tokens.text_of(given)), "prompt")
                for given in texts
            ]
        asked = [one for one in request.messages if one.role == "user"] or request.messages
        answer = self.answer(byte_tokens.said(asked[-1]))
        _check_form(request, answer)
        given = byte_tokens.of_messages(request.messages)
        return [self._prompt(request, given, answer, "messages")]

    def answer(self, text: str) -> str:
        """What the rules say to a text."""
        words = _words(text)
        fitting = (answer for wanted, answer in self._rules if wanted <= words)
        return next(fitting, self._spec.answer)

    @asynccontextmanager
    async def start(
        self, prompt: Prompt, *, slot: int, sample: int, reuse_prefix: bool
    ) -> AsyncIterator[AsyncIterator[Delta]]:
        """Say it."""
        yield _said(prompt)

    async def close(self) -> None:
        """Nothing to give back."""

    def _prompt(
        self, request: ChatRequest | CompletionRequest, given: list[int], answer: str, param: str
    ) -> Prompt:
        if not given:
            raise SchemaViolation(f"'{param}' is empty", param=param)
        most = request.max_tokens
        if isinstance(request, ChatRequest):
            most = request.max_completion_tokens or most or len(answer.encode()) or 1
        room = self._spec.context - len(given)
        if room < 1:
            raise ContextLengthExceeded(
                f"this model's context is {self._spec.context} tokens, but the request has"
                f" {len(given)} in its {param}",
                param=param,
            )
        stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
        ends = [at for stop in stops if (at := answer.find(stop)) >= 0]
        return Prompt(
            tokens=given,
            answer_tokens=min(room, most or COMPLETION_TOKENS),
            sampling={"say": answer[: min(ends, default=len(answer))]},
            text="" if isinstance(request, ChatRequest) else byte_tokens.text_of(given),
        )


async def _said(prompt: Prompt) -> AsyncIterator[Delta]:
    """Word by word, no more tokens than it may have."""
    left, finish = prompt.answer_tokens, "stop"
    for word in _STEPS.findall(prompt.sampling["say"]):
        size = len(word.encode())
        if size > left:
            finish = "length"
            break
        left -= size
        yield Delta(text=word, tokens=size)
    used = prompt.answer_tokens - left
    usage = Usage(prompt_tokens=len(prompt.tokens), completion_tokens=used)
    yield Delta(finish=finish, usage=usage)


def _words(text: str) -> set[str]:
    """Its words; vowel signs are parts of words, which no letter class of `re` knows."""
    parts = (c if c.isalnum() or category(c)[0] == "M" else " " for c in text.casefold())
    return set("".join(parts).split())


def _check_form(request: ChatRequest, answer: str) -> None:
    demanded = demand(request)
    if demanded is None:
        return
    grammars = Grammars()
    witness = grammars.witness(grammars.compile(demanded.schema, demanded.param))
    if not (witness.read(answer) and witness.complete()):
        raise UnsupportedParameter(
            f"'{demanded.param}' asks for another answer than the rules give: {answer[:80]!r}",
            param=demanded.param,
        )
