"""The OpenAPI 3.1 document of everything that the public port speaks."""

import msgspec

from tiffin.dialects.anthropic import openapi as messages
from tiffin.dialects.documents import openapi as documents
from tiffin.dialects.oip import openapi as oip
from tiffin.dialects.openai import openapi as openai
from tiffin.dialects.openai import openapi_responses as responses
from tiffin.dialects.openai import openapi_sounds as sounds


def document() -> bytes:
    """The whole document as JSON."""
    tree = msgspec.json.decode(openai.document())
    for part in (oip, documents, responses, sounds, messages):
        tree["paths"] |= part.paths()
        tree["components"]["schemas"] |= part.schemas()
    return msgspec.json.format(msgspec.json.encode(tree), indent=2)
