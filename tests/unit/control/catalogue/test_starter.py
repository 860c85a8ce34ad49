"""The starter's models are well formed and come in a good order."""

from tiffin.adapters.sources.registry import default_sources
from tiffin.config.models import LlamacppModel
from tiffin.control.catalogue.pull import artifacts_of, check, smallest_first
from tiffin.control.catalogue.starter import STARTER_MODELS


def test_every_starter_model_has_sources_that_are_well_formed() -> None:
    for name, model in STARTER_MODELS.items():
        for artifact in artifacts_of(name, model):
            check(artifact, default_sources({}))
            kinds = [uri.partition(":")[0] for uri in artifact.sources]
            first = "package" if name == "credit-default" else "pypi"
            assert kinds == ([first, "hf"] if artifact.chats else [first])


def test_the_tiny_one_is_fetched_first() -> None:
    artifacts = [one for name, model in STARTER_MODELS.items() for one in artifacts_of(name, model)]
    order = [one.model for one in smallest_first(artifacts)]
    assert order[:2] == ["chat-tiny", "credit-default"]
    assert order[-1] == "chat"


def test_only_the_larger_one_offers_tools() -> None:
    tools = {n: m.tools for n, m in STARTER_MODELS.items() if isinstance(m, LlamacppModel)}
    assert tools == {"chat": True, "chat-tiny": False}
