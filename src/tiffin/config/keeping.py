"""What the settings of kept content must keep to."""

from collections.abc import Iterator, Mapping

from tiffin.config.models import LlamacppModel, Model, OnnxModel, RemoteModel
from tiffin.config.references import broken_reference
from tiffin.config.shape import Problem, nearest
from tiffin.config.vault import AnswerCache, Idempotency, Vault
from tiffin.types.caching import LANGUAGES, SemanticCaching

AROUND_BYTES = 4096
"""What is kept beside an answer is less than that."""


def broken_vault(vault: Vault, where: str = "server.vault") -> Iterator[Problem]:
    """Every rule that `[server.vault]` breaks."""
    yield from broken_reference(vault, where, needed=False)
    yield from broken_reference(vault.previous, f"{where}.previous", needed=False)


def broken_idempotency(
    settings: Idempotency, where: str = "server.idempotency"
) -> Iterator[Problem]:
    """Every rule that `[server.idempotency]` breaks: a bound that nothing fits in is none."""
    for name in ("max_tenant_bytes", "max_bytes"):
        if getattr(settings, name) < settings.max_answer_bytes + AROUND_BYTES:
            yield Problem(
                f"{where}.{name}", f"expected at least max_answer_bytes and {AROUND_BYTES} more"
            )


def broken_cache(settings: AnswerCache, where: str = "server.cache") -> Iterator[Problem]:
    """Every rule that `[server.cache]` breaks."""
    if settings.max_bytes < settings.max_answer_bytes + AROUND_BYTES:
        yield Problem(
            f"{where}.max_bytes", f"expected at least max_answer_bytes and {AROUND_BYTES} more"
        )


def broken_semantic(
    settings: SemanticCaching, where: str, models: Mapping[str, Model]
) -> Iterator[Problem]:
    """Every rule that `[models.NAME.cache.semantic]` breaks."""
    name = settings.embedder
    if name and name not in models:
        yield Problem(f"{where}.embedder", f'there is no model "{name}"{nearest(name, models)}')
    elif name and not _makes_vectors(models[name]):
        yield Problem(f"{where}.embedder", f'"{name}" makes no vectors; it needs task = "embed"')
    if settings.thresholds and not name:
        yield Problem(f"{where}.embedder", "missing: thresholds are for the vectors of a model")
    for language in settings.thresholds:
        if language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            yield Problem(f"{where}.thresholds.{language}", f"expected one of {known}")


def _makes_vectors(model: Model) -> bool:
    if isinstance(model, OnnxModel | LlamacppModel):
        return model.task == "embed"
    return isinstance(model, RemoteModel) and model.protocol == "openai"
