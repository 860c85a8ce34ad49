"""Which public path asks for what: its name in accounts, and the dialect that reads it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tiffin.dialects.anthropic.counting import PATH as COUNT
from tiffin.dialects.anthropic.counting import read_count
from tiffin.dialects.anthropic.dialect import PATH as MESSAGES
from tiffin.dialects.anthropic.dialect import MessagesDialect, read_message_request
from tiffin.dialects.dialect import Dialect
from tiffin.dialects.documents.dialect import PATH as DOCUMENTS
from tiffin.dialects.documents.dialect import read_document
from tiffin.dialects.oip.dialect import InferDialect
from tiffin.dialects.openai.dialect import OpenAIDialect, Read
from tiffin.dialects.openai.embeddings import read_embedding
from tiffin.dialects.openai.rerank import COHERES, read_rerank
from tiffin.dialects.openai.responses import ResponsesDialect
from tiffin.dialects.openai.text import TextEndpoint
from tiffin.dialects.openai.transcriptions import PATH as TRANSCRIPTIONS
from tiffin.dialects.openai.transcriptions import read_transcription


@dataclass(slots=True, frozen=True)
class Operation:
    """What a request to a path is: its name in accounts and metrics, and its dialect.

    `id_headers` are those that tell clients the request's id. `fetch` is awaited before a body is
    read, with the tenant whose it is, where something may have to be had from elsewhere first.
    """

    name: str
    dialect: Dialect
    id_headers: tuple[bytes, ...] = (b"x-request-id",)
    fetch: Callable[[str, bytes], Awaitable[None]] | None = None


@dataclass(slots=True, frozen=True)
class Pattern:
    """Paths with a model's name inside: what they begin and end with."""

    begins: bytes
    ends: bytes
    operation: Operation


class Operations:
    """Finds the operation of a path."""

    def __init__(self, exact: Mapping[bytes, Operation], patterns: Sequence[Pattern] = ()) -> None:
        self._exact = dict(exact)
        self._patterns = tuple(patterns)

    def find(self, path: bytes) -> Operation | None:
        """The operation that a request to this path asks for, if it asks for one."""
        found = self._exact.get(path)
        if found is not None:
            return found
        for pattern in self._patterns:
            if path.startswith(pattern.begins) and path.endswith(pattern.ends):
                return pattern.operation
        return None


def all_operations(responses: ResponsesDialect | None = None) -> Operations:
    """Everything that the public port offers to take through the walk.

    `responses` is there where conversations can be kept.
    """
    keeping = {}
    if responses is not None:
        keeping[b"/v1/responses"] = Operation("responses", responses, fetch=responses.fetch)
    return Operations(
        {
            b"/v1/chat/completions": _text("chat", "chat", b"/v1/chat/completions"),
            b"/v1/completions": _text("completions", "completion", b"/v1/completions"),
            b"/tokenize": _text("tokenize", "tokenize", b"/tokenize"),
            b"/detokenize": _text("detokenize", "detokenize", b"/detokenize"),
            b"/v1/embeddings": Operation("embeddings", OpenAIDialect(read_embedding)),
            b"/v1/rerank": (rerank := Operation("rerank", OpenAIDialect(read_rerank))),
            COHERES: rerank,
            TRANSCRIPTIONS: Operation("transcriptions", OpenAIDialect(read_transcription)),
            MESSAGES: _anthropic("messages", read_message_request),
            COUNT: _anthropic("count_tokens", read_count),
            **keeping,
        },
        [
            Pattern(b"/v2/models/", b"/infer", Operation("infer", InferDialect())),
            Pattern(DOCUMENTS, b"", Operation("documents", OpenAIDialect(read_document))),
        ],
    )


def _text(name: str, kind: str, path: bytes) -> Operation:
    return Operation(name, OpenAIDialect(TextEndpoint(kind, path).read))


def _anthropic(name: str, read: Read) -> Operation:
    return Operation(name, MessagesDialect(read), (b"x-request-id", b"request-id"))
