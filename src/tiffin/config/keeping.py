"""What the settings of kept content must keep to."""

from collections.abc import Iterator

from tiffin.config.references import broken_reference
from tiffin.config.shape import Problem
from tiffin.config.vault import AnswerCache, Idempotency, Vault

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
