"""What the sections of all models share."""

from typing import Any

import msgspec

from tiffin.config.fields import SecondsOrNone
from tiffin.config.objectives import Slo
from tiffin.types.caching import Caching


class ModelCommon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every model has, whatever runs it.

    `revisions` are others that are served beside it as `NAME@LABEL`, by label: what differs.
    """

    timeout_s: SecondsOrNone = 0.0
    cache: Caching = Caching()
    guard: str = ""
    slo: Slo = Slo()
    revisions: dict[str, dict[str, Any]] = {}
