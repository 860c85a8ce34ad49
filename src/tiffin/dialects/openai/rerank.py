"""Reranking in the shape that Cohere and Jina share: a dialect of the walk, and its answers.

`return_documents` is off unless asked for: who asks has the documents.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tiffin.dialects.dialect import JSON_CONTENT, Extent, Forward, Portion, Reading, Told, Whole
from tiffin.dialects.openai.parameters import not_supported
from tiffin.dialects.openai.tallies import read_tally
from tiffin.dialects.openai.text import JSON_HEADERS, strings
from tiffin.dialects.reader import Reader
from tiffin.ports.exchange import Exchange
from tiffin.ports.guard import Piece
from tiffin.types.profiles import profile_of
from tiffin.types.snapshot import Plan, Target
from tiffin.types.texts import Document, RerankRequest

PATH = b"/v1/rerank"
COHERES = b"/v2/rerank"
"""Where Cohere's own clients ask the same."""
_ROOT = "rerank."
# What replicas of ours have no use for: every document is looked at whole, or refused.
LOCAL_UNSUPPORTED = ("rank_fields", "max_chunks_per_doc", "max_tokens_per_doc")

READER = Reader(RerankRequest)
_encode = msgspec.json.Encoder().encode


class _Result(msgspec.Struct, omit_defaults=True):
    index: int
    relevance_score: float
    document: Document | None = None


class _Answer(msgspec.Struct):
    results: list[_Result] = []


_ANSWERS = msgspec.json.Decoder(_Answer)


def read_rerank(exchange: Exchange, body: bytes) -> "RerankAsked":
    """The request to rank documents that a body spells; raises `InvalidRequest`."""
    return RerankAsked(*READER.read(body))


class RerankAsked:
    """One request to rank documents; satisfies `dialects.dialect.Asked`."""

    __slots__ = ("_canonical", "model", "request")

    operation = "rerank"
    streaming = False
    timeout_s = 0.0
    batch = False
    leaves_prefix = False
    offers_tools = False
    end_user = ""
    cached_as = "rerank"

    def __init__(self, request: RerankRequest, canonical: bytes) -> None:
        self._canonical = canonical
        self.request = request
        self.model = request.model

    def check(self, plan: Plan) -> None:
        """What the plan's targets can't honour."""
        for target in plan.targets:
            refuse(self.request, _not_honoured(target))

    def pieces(self) -> Iterator[Piece]:
        """Every string."""
        return strings("", msgspec.to_builtins(self.request))

    def extent(self) -> Extent:
        """Texts that are read."""
        return Extent(text=True, rows=len(self.request.documents))

    def portions(self) -> Iterator[Portion]:
        """Its documents."""
        yield Portion("rows", "documents", len(self.request.documents))

    def shorten(self, tokens: int) -> None:
        """Scores have no length."""

    def canonical(self) -> bytes:
        """The same for whoever asks, and for documents in either form."""
        return _encode(
            msgspec.structs.replace(
                self.request,
                documents=texts_of(self.request),
                return_documents=bool(self.request.return_documents),
                user=None,
            )
        )

    def forward(self, target: Target) -> Forward:
        """The body with the target's name for the model."""
        path = PATH.removeprefix(b"/v1") if target.kind == "remote" else PATH
        name = target.upstream_model or target.model
        if target.profile:
            return Forward(path, JSON_CONTENT, self._as_known(name, target.profile))
        if name == self.model:
            return Forward(path, JSON_CONTENT, self._canonical)
        renamed = msgspec.structs.replace(self.request, model=name)
        return Forward(path, JSON_CONTENT, _encode(renamed))

    def _as_known(self, name: str, kind: str) -> bytes:
        """The body as servers of a kind know it: documents as texts, and whether they are wanted
        back said where it may be, since some send them unless told."""
        request, profile = self.request, profile_of(kind)
        documents = None
        if f"{_ROOT}return_documents" not in profile.unsupported:
            documents = bool(request.return_documents)
        return _encode(
            msgspec.structs.replace(
                request,
                model=name,
                documents=texts_of(request),
                return_documents=documents,
                user=None if "user" in profile.unsent else request.user,
            )
        )

    def whole(self, told: Told, target: Target) -> Whole:
        """The answer as it came, with as many results as were asked for."""
        usage = told.usage or read_tally(
            told.body, "results", results_wanted(self.request), trusted=target.kind != "remote"
        )
        return Whole(JSON_HEADERS, told.body, usage)

    def reading(self, target: Target) -> Reading:
        """Nothing: rankings aren't streamed."""
        raise TypeError("rankings aren't streamed")

    def settle(self) -> None:
        """Nothing is kept of it."""

    def answer_text(self, body: bytes) -> str:
        """The documents that come back."""
        results = _ANSWERS.decode(body).results
        return "\n".join(result.document.text for result in results if result.document)


def check(request: RerankRequest) -> None:
    """Raise `UnsupportedParameter` for what a replica of ours can't honour."""
    refuse(request, LOCAL_UNSUPPORTED)


def refuse(request: RerankRequest, unsupported: Iterable[str]) -> None:
    """Raise `UnsupportedParameter` for the first of these that asks for something."""
    for name in unsupported:
        if getattr(request, name) not in (None, False):
            raise not_supported(name)


def _not_honoured(target: Target) -> Iterable[str]:
    if target.kind != "remote":
        return LOCAL_UNSUPPORTED
    names = sorted(profile_of(target.profile).unsupported)
    return [name.removeprefix(_ROOT) for name in names if name.startswith(_ROOT)]


def texts_of(request: RerankRequest) -> list[str]:
    """The documents as plain texts."""
    return [one if isinstance(one, str) else one.text for one in request.documents]


def results_wanted(request: RerankRequest) -> int:
    """How many results the answer has."""
    return min(request.top_n or len(request.documents), len(request.documents))


def rerank_reply(name: str, request: RerankRequest, scores: Sequence[float], tokens: int) -> bytes:
    """The answer called `name`: the best documents first, of equal ones the earlier first."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])[: results_wanted(request)]
    texts = texts_of(request) if request.return_documents else None
    results = [
        _Result(at, scores[at], Document(text=texts[at]) if texts is not None else None)
        for at in order
    ]
    return _encode(
        {
            "id": name,
            "model": request.model,
            "results": results,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )
