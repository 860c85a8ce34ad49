"""What a model can do, by the section that configures it."""

from tiffin.config.models import Model, OnnxModel, PythonModel, RemoteModel

TEXT_OPERATIONS = ("chat", "completion", "tokenize", "detokenize", "response")


def kind_of(model: Model) -> str:
    """The name of a model's runtime."""
    return str(model.__struct_config__.tag)


def serves(model: Model) -> tuple[str, ...]:
    """The operations that a model of this section can do."""
    match model:
        case OnnxModel(task="embed"):
            return ("embedding", "infer")
        case OnnxModel(task="rerank"):
            return ("rerank", "infer")
        case OnnxModel() | PythonModel() | RemoteModel(protocol="oip"):
            return ("infer",)
        case RemoteModel():
            return (*TEXT_OPERATIONS, "embedding", "rerank", "transcription")
        case _:
            return TEXT_OPERATIONS
