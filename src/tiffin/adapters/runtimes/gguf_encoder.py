"""A GGUF model that embeds or ranks texts, run by llama.cpp inside this process.

It satisfies `ports.tensor_runtime.TensorRuntime`, so that texts are batched as with any encoder:
vectors are made of tokens, scores of a query and a document, which the engine puts together.
"""

import asyncio
import http.client
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tiffin.adapters.runtimes.engine import Engine, Extent, refusal
from tiffin.adapters.runtimes.gguf import read_fields, read_tensors
from tiffin.errors import LoadFailed, RunFailed, TiffinError
from tiffin.ports.tensor_runtime import Arrays, Run
from tiffin.ports.tokenizer import Tokens
from tiffin.types.tensors import ANY, Signature, TensorSpec

EMBEDDING: Final = "embedding"
SCORE: Final = "score"
QUERY: Final = "query"
DOCUMENT: Final = "document"
IDS: Final = "input_ids"
MASK: Final = "attention_mask"
RANK: Final = "rank"
HEAD: Final = "cls.output.weight"
"""The tensor without which a file can't rank: llama.cpp would tell what lay in memory before."""
ANSWER_S: Final = 600.0

T = TypeVar("T")

_POOLINGS: Final = {1: "mean", 2: "cls", 3: "last", 4: RANK}
_TEMPLATE: Final = "tokenizer.chat_template.rerank"


@dataclass(frozen=True, slots=True)
class Nature:
    """What a file is, for embedding or ranking: `context` is the longest text it was made for."""

    pooling: str
    context: int
    vocabulary: int


def nature_of(path: str, task: str, pooling: str) -> Nature:
    """What the file says, and where it doesn't, the `pooling` that is demanded; blocks.

    Raises `LoadFailed` where the file can't do the task.
    """
    fields = read_fields(path)
    architecture = fields.get("general.architecture", b"").decode("utf-8", "replace")
    told = _POOLINGS.get(fields.get(f"{architecture}.pooling_type", 0), "")
    if task == "rerank":
        _refuse_without_head(path, told, fields)
    elif told == RANK:
        raise LoadFailed('the file ranks texts and gives no vectors: it needs task = "rerank"')
    elif not (told or pooling):
        raise LoadFailed(
            "the file doesn't say how a text's vector is made of its tokens: the model's section"
            ' needs pooling = "mean", "last" or "cls", as the model was trained'
        )
    elif told and pooling not in ("", told):
        raise LoadFailed(f'the file says pooling = "{told}", and the section "{pooling}"')
    return Nature(
        pooling=told or pooling,
        context=int(fields.get(f"{architecture}.context_length", 0)),
        vocabulary=len(fields.get("tokenizer.ggml.tokens", ())),
    )


def _refuse_without_head(path: str, told: str, fields: Mapping[str, Any]) -> None:
    if told != RANK:
        raise LoadFailed(
            f"the file can't rank texts: its pooling is {told or 'none'}, where a reranker has rank"
        )
    if HEAD not in read_tensors(path):
        raise LoadFailed(f"the file can't rank texts: it has no rank head ({HEAD})")
    if _TEMPLATE in fields:
        # What a user writes would be read as its control tokens too.
        raise LoadFailed("rerankers that ask through a prompt of their own aren't supported")


class GgufEncoder:
    """One model and its engine. `pooling` is demanded where the file says none ("": as it says).

    `max_tokens`, known once loaded, is the longest text that it reads.
    """

    lanes = 1
    inline = False
    wide: Run | None = None
    example: Arrays | None = None

    def __init__(
        self, model_path: str, task: str, pooling: str, engine_socket: str, extent: Extent
    ) -> None:
        self._path = model_path
        self._task = task
        self._pooling = pooling
        self._extent = extent
        self._socket = engine_socket
        self._width = 0
        self._engine: Engine | None = None
        self.max_tokens = extent.context
        self.tokens = EngineTokens(engine_socket, 0)

    async def load(self) -> Signature:
        """Start the engine and see what it gives; raises `LoadFailed`."""
        nature = await asyncio.to_thread(nature_of, self._path, self._task, self._pooling)
        self.max_tokens = min(self._extent.context, nature.context or self._extent.context)
        extent = Extent(
            self.max_tokens,
            self._extent.slots,
            self._extent.threads,
            self._extent.cache,
            nature.pooling,
        )
        self._engine = Engine(self._path, self._socket, extent)
        await asyncio.to_thread(self._engine.start)
        self.tokens = EngineTokens(self._socket, nature.vocabulary)
        try:
            return await asyncio.to_thread(self._first)
        except TiffinError as error:
            raise LoadFailed(f"the model's first run failed: {error.message}") from error

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """Vectors of rows of tokens, or scores of pairs; blocks. Raises `RunFailed`."""
        del outputs
        if self._task == "rerank":
            return {SCORE: self._scores(inputs[QUERY], inputs[DOCUMENT])}
        rows = [
            [int(one) for one in ids[mask > 0]]
            for ids, mask in zip(inputs[IDS], inputs[MASK], strict=True)
        ]
        return {EMBEDDING: self._vectors(rows)}

    async def close(self) -> None:
        """End the engine; what runs there ends with it. Idempotent."""
        if self._engine is not None:
            await asyncio.to_thread(self._engine.stop)

    def _first(self) -> Signature:
        if self._task == "rerank":
            self._find_frame()
            self.example = {QUERY: _texts([b"1"]), DOCUMENT: _texts([b"1"])}
            return Signature(
                inputs=tuple(
                    TensorSpec(name=name, datatype="BYTES", shape=(ANY, 1))
                    for name in (QUERY, DOCUMENT)
                ),
                outputs=(TensorSpec(name=SCORE, datatype="FP32", shape=(ANY, 1)),),
                batched=True,
            )
        [hello] = self.tokens.encode(["Hello"])
        ids = np.array([hello.ids], np.int64)
        self.example = {IDS: ids, MASK: np.ones_like(ids)}
        self._width = self._vectors([list(hello.ids)]).shape[1]
        return Signature(
            inputs=tuple(
                TensorSpec(name=name, datatype="INT64", shape=(ANY, ANY)) for name in (IDS, MASK)
            ),
            outputs=(TensorSpec(name=EMBEDDING, datatype="FP32", shape=(ANY, self._width)),),
            batched=True,
        )

    def _find_frame(self) -> None:
        """How many tokens the engine puts around a pair's: it alone knows."""
        asked = {"query": "a", "documents": ["b"]}
        with closing(Asking(self._socket)) as asking:
            whole = asking.ask("/rerank", asked, _Ranking).usage.prompt_tokens
        parts = len(self.tokens.ids("a", special=False)) + len(self.tokens.ids("b", special=False))
        self.tokens.frame = max(0, whole - parts)

    def _vectors(self, rows: list[list[int]]) -> NDArray[np.float32]:
        given = [row for row in rows if row]
        answers: list[_Vector] = []
        if given:
            with closing(Asking(self._socket)) as asking:
                answers = asking.ask("/embeddings", {"content": given}, list[_Vector])
        if len(answers) != len(given):
            raise RunFailed(f"the engine gave {len(answers)} vectors for {len(given)} texts")
        found = iter(sorted(answers, key=lambda one: one.index))
        # A row without a token has nothing that its vector could be made of.
        vectors = [next(found).embedding[0] if row else [0.0] * self._width for row in rows]
        return np.array(vectors, np.float32)

    def _scores(self, queries: NDArray[Any], documents: NDArray[Any]) -> NDArray[np.float32]:
        scores = np.zeros((len(queries), 1), np.float32)
        rows: dict[bytes, list[int]] = {}
        for at, query in enumerate(queries[:, 0]):
            rows.setdefault(query, []).append(at)
        with closing(Asking(self._socket)) as asking:
            for query, places in rows.items():
                asked = {
                    "query": query.decode("utf-8", "replace"),
                    "documents": [documents[at, 0].decode("utf-8", "replace") for at in places],
                }
                results = asking.ask("/rerank", asked, _Ranking).results
                if sorted(one.index for one in results) != list(range(len(places))):
                    raise RunFailed("the engine's ranking isn't one of the documents that it got")
                for one in results:
                    scores[places[one.index], 0] = one.relevance_score
        return scores


class EngineTokens:
    """The engine's tokens of texts; satisfies `ports.tokenizer.Tokenizer`.

    What a user writes is never read as a control token. `frame` is how many tokens stand around
    and between a pair's own.
    """

    def __init__(self, engine_socket: str, vocabulary: int) -> None:
        self._socket = engine_socket
        self.vocabulary = vocabulary
        self.frame = 0

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text with the special tokens around it."""
        return [Tokens(ids, [0] * len(ids)) for ids in self._read(texts, special=True)]

    def encode_pairs(self, first: str, seconds: Sequence[str]) -> list[Tokens]:
        """The first text with each of the second ones; only how many ids there are is exact."""
        one, *others = self._read([first, *seconds], special=False)
        found = []
        for text, other in zip(seconds, others, strict=True):
            ids = [*one, *[0] * self.frame, *other]
            types = [0] * (len(one) + self.frame) + [1] * len(other)
            found.append(Tokens(ids, types, (first, text)))
        return found

    def ids(self, text: str, *, special: bool) -> list[int]:
        """The ids of one text, with or without special tokens."""
        [ids] = self._read([text], special=special)
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """What ids say, special tokens too."""
        with closing(Asking(self._socket)) as asking:
            return asking.ask("/detokenize", {"tokens": list(ids)}, _Text).content

    def _read(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        with closing(Asking(self._socket)) as asking:
            return [
                asking.ask(
                    "/tokenize",
                    {"content": text, "add_special": special, "parse_special": False},
                    _Ids,
                ).tokens
                for text in texts
            ]


class Asking:
    """A connection to the engine, for questions from a thread that may block.

    None is kept between uses: each holds one of the engine's threads.
    """

    def __init__(self, engine_socket: str) -> None:
        self._connection = _Connection(engine_socket)

    def ask(self, path: str, question: Any, kind: type[T]) -> T:
        """One question's answer; raises `InvalidRequest` or `RunFailed` with the engine's words."""
        body = msgspec.json.encode(question)
        try:
            headers = {"content-type": "application/json"}
            self._connection.request("POST", path, body, headers)
            reply = self._connection.getresponse()
            answer = reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise RunFailed(f"the engine doesn't answer: {error}") from error
        if reply.status != 200:
            raise refusal(reply.status, answer)
        try:
            return msgspec.json.decode(answer, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RunFailed(f"the engine's answer can't be read: {error}") from error

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class _Connection(http.client.HTTPConnection):
    """Over a unix socket; made anew where the engine closes it, as it does now and again."""

    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(self._path)


class _Vector(msgspec.Struct):
    index: int
    embedding: list[list[float]]


class _Scored(msgspec.Struct):
    index: int
    relevance_score: float


class _Used(msgspec.Struct):
    prompt_tokens: int = 0


class _Ranking(msgspec.Struct):
    results: list[_Scored]
    usage: _Used = msgspec.field(default_factory=_Used)


class _Ids(msgspec.Struct):
    tokens: list[int]


class _Text(msgspec.Struct):
    content: str


def _texts(values: Sequence[bytes]) -> NDArray[Any]:
    array = np.empty((len(values), 1), object)
    array[:, 0] = values
    return array
