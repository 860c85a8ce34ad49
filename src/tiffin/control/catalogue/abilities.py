"""What a model can do, by the section that configures it."""

from tiffin.config.models import (
    LlamacppModel,
    Model,
    OnnxModel,
    PipelineModel,
    PythonModel,
    RemoteModel,
    WhisperModel,
)
from tiffin.types.profiles import profile_of

DOCUMENT_OUTPUTS = frozenset(("text", "confidence", "box", "page", "size"))
"""The outputs of a pipeline that reads documents."""

TOKEN_OPERATIONS = ("tokenize", "detokenize")
TEXT_OPERATIONS = ("chat", "completion", *TOKEN_OPERATIONS, "response", "count_tokens")


def kind_of(model: Model) -> str:
    """The name of a model's runtime."""
    return str(model.__struct_config__.tag)


def serves(model: Model) -> tuple[str, ...]:
    """The operations that a model of this section can do."""
    match model:
        case OnnxModel(task="embed"):
            found: tuple[str, ...] = ("embedding", "infer", *TOKEN_OPERATIONS)
        case OnnxModel(task="rerank"):
            found = ("rerank", "infer", *TOKEN_OPERATIONS)
        case LlamacppModel(task="embed"):
            found = ("embedding", *TOKEN_OPERATIONS)
        case LlamacppModel(task="rerank"):
            found = ("rerank", *TOKEN_OPERATIONS)
        case PipelineModel() if set(model.outputs) >= DOCUMENT_OUTPUTS:
            found = ("document", "infer")
        case OnnxModel() | PythonModel() | PipelineModel() | RemoteModel(protocol="oip"):
            found = ("infer",)
        case RemoteModel():
            found = profile_of(model.profile).serves
        case WhisperModel():
            found = ("transcription",)
        case _:
            found = TEXT_OPERATIONS
    return found
