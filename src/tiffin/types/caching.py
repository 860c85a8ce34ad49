"""How answers to one public name may be given again."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tiffin.types.residency import DataClass

YEAR_S = 31_536_000
SecondsOrNone = Annotated[float, Meta(ge=0, le=YEAR_S)]
Version = Annotated[str, Meta(max_length=128)]


LANGUAGES: Final = ("bn", "en", "hi", "hinglish", "mr", "ta")
"""Those that a semantic cache can tell the meaning of questions in."""

Similarity = Annotated[float, Meta(gt=0, le=1)]
Milliseconds = Annotated[float, Meta(ge=1, le=60_000)]


class SemanticCaching(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.NAME.cache.semantic]`: answers are given again to questions in other words too.

    Only where rules say that two questions mean the same, and the vectors that the model `embedder`
    makes of them are as similar as `thresholds` wants for their language (`bn`, `en`, `hi`,
    `hinglish`, `mr`, `ta`). `tiffin cache calibrate` finds these; a language without one is off.
    Where the embedder takes longer than `wait_ms`, the answer is made.
    """

    embedder: str = ""
    thresholds: dict[str, Similarity] = {}
    wait_ms: Milliseconds = 200.0


class Caching(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.NAME.cache]`, `[routes.NAME.cache]`: which answers are given again, and how long.

    Nothing is kept where `ttl_s` is 0. After that an answer is only given where everything else
    fails, for `stale_s` more. Requests with data above `data_class` are never kept, those that
    offer tools only with `tools`, those with personal data only with `personal_data`. Answers of
    another `version` (of your prompts, documents, policies) are others.
    """

    ttl_s: SecondsOrNone = 0.0
    stale_s: SecondsOrNone = 0.0
    data_class: DataClass = "internal"
    tools: bool = False
    personal_data: bool = True
    version: Version = ""
    semantic: SemanticCaching = SemanticCaching()

    @property
    def on(self) -> bool:
        """Whether anything is kept."""
        return self.ttl_s > 0
