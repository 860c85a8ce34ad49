"""Requests about texts that aren't answered in text: vectors of them, and their relevance.

Closed and bounded like types/text.py; what spans fields is checked by their dialects.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from tiffin.types.text import ModelName, TokenId, TokenIds

MAX_INPUTS = 2048
MAX_DOCUMENTS = 2048
MAX_DIMENSIONS = 65_536

Dimensions = Annotated[int, Meta(ge=1, le=MAX_DIMENSIONS)]
Filled = Annotated[str, Meta(min_length=1)]
TopN = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class EmbeddingRequest(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """`POST /v1/embeddings`: one text or several, as strings or as the model's own token ids."""

    model: ModelName
    input: Filled | Annotated[list[Filled | TokenId | TokenIds], Meta(max_length=1_048_576)]
    encoding_format: str | None = None
    dimensions: Dimensions | None = None
    user: str | None = None


class Document(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A document of a rerank request, in the form that has room for more."""

    text: Filled


class RerankRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /v1/rerank`: documents by their relevance to a query, in Cohere's and Jina's shape."""

    model: ModelName
    query: Filled
    documents: Annotated[list[Filled | Document], Meta(min_length=1, max_length=MAX_DOCUMENTS)]
    top_n: TopN | None = None
    return_documents: bool | None = None
    user: str | None = None
    # Known and refused by name where a model can't honour them.
    rank_fields: Annotated[list[str], Meta(max_length=64)] | None = None
    max_chunks_per_doc: TopN | None = None
    max_tokens_per_doc: TopN | None = None


TextsRequest = EmbeddingRequest | RerankRequest
