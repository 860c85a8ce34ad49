"""Texts to tokens beside the event loop: in slices, so that one long request holds nobody up.

What is too long is refused here, before anything is queued, and named.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tiffin.errors import ContextLengthExceeded, SchemaViolation
from tiffin.ports.tokenizer import Tokenizer, Tokens

# About half a millisecond of work, which doesn't pay for another thread.
INLINE_CHARACTERS: Final = 2_048
SLICE_CHARACTERS: Final = 32_768
# More than any text has, so that what can't fit isn't read to its end.
CHARACTERS_PER_TOKEN: Final = 64


class Reader:
    """Reads texts for one model that takes at most `max_tokens` of them, in a thread of its own."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokens")

    async def texts(self, inputs: Sequence[str | list[int]]) -> list[Tokens]:
        """The tokens of each input of an embeddings request; raises `InvalidRequest`."""
        names = [named("input", at, len(inputs)) for at in range(len(inputs))]
        found: list[Tokens] = []
        strings: list[str] = []
        for name, given in zip(names, inputs, strict=True):
            if isinstance(given, str):
                self._refuse_endless(len(given), name)
                strings.append(given)
            else:
                found.append(self._known(given, name))
        if strings:
            found = await self._read(strings, 0, self._tokenizer.encode)
        self._refuse_long(found, names)
        return found

    async def pairs(self, query: str, documents: Sequence[str]) -> list[Tokens]:
        """The tokens of the query with each document; raises `InvalidRequest`."""
        self._refuse_endless(len(query), "query")
        names = [named("documents", at, len(documents)) for at in range(len(documents))]
        for name, document in zip(names, documents, strict=True):
            self._refuse_endless(len(document), name)

        def encode(some: Sequence[str]) -> list[Tokens]:
            return self._tokenizer.encode_pairs(query, some)

        found = await self._read(documents, len(query), encode)
        self._refuse_long(found, names, " together with the query")
        return found

    def close(self) -> None:
        """End the thread once what it does is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(
        self,
        texts: Sequence[str],
        beside: int,
        encode: Callable[[Sequence[str]], list[Tokens]],
    ) -> list[Tokens]:
        """All tokens; each text has `beside` characters more than its own."""
        if sum(map(len, texts)) + beside * len(texts) <= INLINE_CHARACTERS:
            return encode(texts)
        found: list[Tokens] = []
        loop = asyncio.get_running_loop()
        for some in _slices(texts, beside):
            found += await loop.run_in_executor(self._thread, encode, some)
        return found

    def _known(self, ids: list[int], name: str) -> Tokens:
        """Ids that a client gives, as they are: the special ones are theirs to give."""
        largest = max(ids)
        if largest >= self._tokenizer.vocabulary:
            raise SchemaViolation(
                f"'{name}' has the token id {largest}; this model has ids up to "
                f"{self._tokenizer.vocabulary - 1}",
                param=name,
            )
        return Tokens(ids, [0] * len(ids))

    def _refuse_long(self, found: Sequence[Tokens], names: Sequence[str], how: str = "") -> None:
        for name, tokens in zip(names, found, strict=True):
            if len(tokens.ids) > self._max_tokens:
                raise ContextLengthExceeded(
                    f"'{name}' has {len(tokens.ids)} tokens{how}; "
                    f"this model takes at most {self._max_tokens}",
                    param=name,
                )

    def _refuse_endless(self, characters: int, name: str) -> None:
        most = self._max_tokens * CHARACTERS_PER_TOKEN
        if characters > most:
            raise ContextLengthExceeded(
                f"'{name}' has {characters} characters; this model takes at most "
                f"{self._max_tokens} tokens, and no more than {most} characters are read",
                param=name,
            )


def named(param: str, at: int, count: int) -> str:
    """What one of `count` texts is called in a request; a single input stands without a list."""
    return param if count == 1 and param == "input" else f"{param}[{at}]"


def _slices(texts: Sequence[str], beside: int) -> Iterator[list[str]]:
    some: list[str] = []
    characters = 0
    for text in texts:
        some.append(text)
        characters += len(text) + beside
        if characters >= SLICE_CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some
