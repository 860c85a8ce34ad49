"""What a single request may ask for at most, as values: nothing of it is used up."""

from typing import Annotated

import msgspec
from msgspec import Meta

Most = Annotated[int, Meta(ge=0, le=10**12)]
Some = Annotated[int, Meta(ge=1, le=10**12)]


class Caps(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
):
    """`[….limits.per_request]`: the most that each request may ask for; unsaid, there is no cap.

    `body_bytes` is its whole body. `input_tokens` are counted by the model that gets them; an
    upstream's are taken for a quarter of the text's characters. `output_tokens` holds for each
    answer, also where the request doesn't say how long it may be. `choices` is `n`, `stops` are
    stop strings, `rows` texts to embed, documents to rank, prompts, or rows of tensors. `images`
    and `files` (sounds, documents) are counted however they come; `links` are those of them given
    as addresses, `file_bytes` is the largest given whole. `tools` are offered; `schema_bytes` is
    the size of the answer's schema, and of all tools' schemas.
    """

    body_bytes: Some | None = None
    input_tokens: Some | None = None
    output_tokens: Some | None = None
    choices: Some | None = None
    stops: Most | None = None
    rows: Some | None = None
    images: Most | None = None
    files: Most | None = None
    links: Most | None = None
    file_bytes: Most | None = None
    tools: Most | None = None
    schema_bytes: Most | None = None


def said(caps: Caps) -> dict[str, int]:
    """The caps that there are, by name."""
    found = ((name, getattr(caps, name)) for name in caps.__struct_fields__)
    return {name: most for name, most in found if most is not None}
