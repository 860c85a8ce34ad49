"""OpenAI's embeddings: requests as a dialect of the walk, and the answers that carry vectors.

A vector travels as its 32-bit little-endian floats, so that this module needs no arrays. As JSON it
has every digit of them; as base64 it is those bytes.
"""

from array import array
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tiffin.dialects.dialect import JSON_CONTENT, Extent, Forward, Portion, Reading, Told, Whole
from tiffin.dialects.faults import shown
from tiffin.dialects.openai.tallies import read_tally
from tiffin.dialects.openai.text import JSON_HEADERS, strings
from tiffin.dialects.reader import Reader
from tiffin.errors import SchemaViolation
from tiffin.ports.exchange import Exchange
from tiffin.ports.guard import Piece
from tiffin.types.profiles import profile_of
from tiffin.types.snapshot import Plan, Target
from tiffin.types.texts import MAX_INPUTS, EmbeddingRequest

PATH = b"/v1/embeddings"
FORMATS = ("float", "base64")

READER = Reader(EmbeddingRequest)
_encode = msgspec.json.Encoder().encode


def read_embedding(exchange: Exchange, body: bytes) -> "EmbeddingAsked":
    """The request for vectors that a body spells; raises `InvalidRequest`."""
    return EmbeddingAsked(*READER.read(body))


class EmbeddingAsked:
    """One request for vectors; satisfies `dialects.dialect.Asked`."""

    __slots__ = ("_canonical", "end_user", "inputs", "model", "request")

    operation = "embedding"
    streaming = False
    timeout_s = 0.0
    batch = False
    leaves_prefix = False
    offers_tools = False
    cached_as = "embedding"

    def __init__(self, request: EmbeddingRequest, canonical: bytes) -> None:
        self._canonical = canonical
        self.request = request
        self.inputs = EmbeddingInputs(request)
        self.model = request.model
        self.end_user = request.user or ""

    def check(self, plan: Plan) -> None:
        """What the fields mean together."""
        check(self.request)

    def pieces(self) -> Iterator[Piece]:
        """Every string; token ids as what can't be looked into."""
        given = self.request.input
        if isinstance(given, str) or all(isinstance(item, str) for item in given):
            yield from strings("", msgspec.to_builtins(self.request))
        else:
            yield Piece("input", None)

    def extent(self) -> Extent:
        """Texts that are read."""
        return Extent(text=True, rows=len(inputs_of(self.request)))

    def portions(self) -> Iterator[Portion]:
        """Its texts."""
        yield Portion("rows", "input", len(inputs_of(self.request)))

    def shorten(self, tokens: int) -> None:
        """Vectors have the length that they have."""

    def canonical(self) -> bytes:
        """The same for whoever asks, and for a format that is given or meant."""
        form = self.request.encoding_format or FORMATS[0]
        return _encode(msgspec.structs.replace(self.request, encoding_format=form, user=None))

    def forward(self, target: Target) -> Forward:
        """The body with the target's name for the model."""
        path = PATH.removeprefix(b"/v1") if target.kind == "remote" else PATH
        name = target.upstream_model or target.model
        if name == self.model and not target.profile:
            return Forward(path, JSON_CONTENT, self._canonical)
        user = None if "user" in profile_of(target.profile).unsent else self.request.user
        renamed = msgspec.structs.replace(self.request, model=name, user=user)
        return Forward(path, JSON_CONTENT, _encode(renamed))

    def whole(self, told: Told, target: Target) -> Whole:
        """The answer as it came, with a vector for every text."""
        usage = told.usage or read_tally(
            told.body, "data", len(inputs_of(self.request)), trusted=target.kind != "remote"
        )
        return Whole(JSON_HEADERS, told.body, usage)

    def reading(self, target: Target) -> Reading:
        """Nothing: vectors aren't streamed."""
        raise TypeError("vectors aren't streamed")

    def settle(self) -> None:
        """Nothing is kept of it."""

    def answer_text(self, body: bytes) -> str:
        """Nothing: vectors say no words."""
        return ""


class EmbeddingInputs:
    """The texts of a request, one by one; satisfies `dialects.dialect.Inputs`."""

    __slots__ = ("_request",)

    def __init__(self, request: EmbeddingRequest) -> None:
        self._request = request

    def parts(self) -> list[bytes]:
        """Each text as if it was asked for alone."""
        form = self._request.encoding_format or FORMATS[0]
        alone = msgspec.structs.replace(self._request, encoding_format=form, user=None)
        each: list[Any] = list(inputs_of(self._request))
        return [_encode(msgspec.structs.replace(alone, input=given)) for given in each]

    def only(self, places: Sequence[int]) -> "EmbeddingAsked":
        """A request for some of its texts."""
        every = inputs_of(self._request)
        some: Any = [every[place] for place in places]
        request = msgspec.structs.replace(self._request, input=some)
        return EmbeddingAsked(request, _encode(request))

    def split(self, body: bytes) -> list[bytes]:
        """The vectors, each with the name of who made it."""
        try:
            told = _ANSWERS.decode(body)
        except msgspec.DecodeError:
            return []
        rows = told.data
        if any(row.index is not None for row in rows):
            rows = sorted(rows, key=lambda row: -1 if row.index is None else row.index)
            if [row.index for row in rows] != list(range(len(rows))):
                return []
        return [_encode(_Vector(model=told.model, embedding=row.embedding)) for row in rows]

    def joined(self, parts: Sequence[bytes], made: bytes) -> bytes:
        """The vectors in one answer."""
        vectors = [_VECTORS.decode(part) for part in parts]
        told = _ANSWERS.decode(made) if made else _Answer(data=[], model=vectors[0].model)
        return _listed([bytes(one.embedding) for one in vectors], told.model, bytes(told.usage))


class _Row(msgspec.Struct, gc=False):
    embedding: msgspec.Raw
    index: int | None = None


class _Answer(msgspec.Struct, gc=False):
    data: list[_Row]
    model: str = ""
    usage: msgspec.Raw = msgspec.Raw(b'{"prompt_tokens":0,"total_tokens":0}')


class _Vector(msgspec.Struct, gc=False):
    """What is kept of a text: its vector as it was told, and the name of the model with it."""

    model: str
    embedding: msgspec.Raw


_ANSWERS = msgspec.json.Decoder(_Answer)
_VECTORS = msgspec.json.Decoder(_Vector)


def check(request: EmbeddingRequest) -> None:
    """Raise `SchemaViolation` where no model could answer as asked."""
    form = request.encoding_format
    if form is not None and form not in FORMATS:
        raise SchemaViolation(
            f"'encoding_format' must be 'float' or 'base64', not '{shown(form)}'",
            param="encoding_format",
        )
    given = request.input
    if isinstance(given, str):
        return
    if not given:
        raise SchemaViolation("'input' must not be empty", param="input")
    kind = type(given[0])
    if any(type(item) is not kind for item in given):
        raise SchemaViolation(
            "'input' must be all strings, all token ids, or all lists of token ids", param="input"
        )
    if kind is int:
        return
    if len(given) > MAX_INPUTS:
        raise SchemaViolation(
            f"'input' has {len(given)} texts; at most {MAX_INPUTS} are allowed", param="input"
        )
    for at, item in enumerate(given):
        if not item:
            raise SchemaViolation(f"'input[{at}]' must not be empty", param=f"input[{at}]")


def inputs_of(request: EmbeddingRequest) -> list[str | list[int]]:
    """The texts of a checked request, one by one."""
    given: Any = request.input
    return [given] if isinstance(given, str) or isinstance(given[0], int) else given


def embeddings_reply(
    model: str, vectors: Sequence[bytes], form: str | None, prompt_tokens: int
) -> bytes:
    """The answer: a vector for each input, in their order."""
    shape = _base64 if form == "base64" else _floats
    usage = b'{"prompt_tokens":%d,"total_tokens":%d}' % (prompt_tokens, prompt_tokens)
    return _listed([shape(vector) for vector in vectors], model, usage)


def _listed(vectors: Sequence[bytes], model: str, usage: bytes) -> bytes:
    rows = [
        b'{"object":"embedding","index":%d,"embedding":%b}' % (at, vector)
        for at, vector in enumerate(vectors)
    ]
    parts = (b",".join(rows), _encode(model), usage)
    return b'{"object":"list","data":[%b],"model":%b,"usage":%b}' % parts


def _base64(vector: bytes) -> bytes:
    return b'"%b"' % b64encode(vector)


def _floats(vector: bytes) -> bytes:
    return _encode(array("f", vector).tolist())


class _Numbers(msgspec.Struct, gc=False):
    embedding: list[float]
    index: int | None = None


class _Lists(msgspec.Struct, gc=False):
    data: list[_Numbers]


_LISTS = msgspec.json.Decoder(_Lists)


def vectors_of(body: bytes) -> list[list[float]]:
    """The vectors of an answer as lists of numbers, in the order of its inputs; empty where it
    doesn't tell them so."""
    try:
        rows = _LISTS.decode(body).data
    except msgspec.DecodeError:
        return []
    if any(row.index is None for row in rows):
        return [row.embedding for row in rows]
    by_place = {row.index: row.embedding for row in rows}
    return (
        [by_place[at] for at in range(len(rows))]
        if by_place.keys() == set(range(len(rows)))
        else []
    )
