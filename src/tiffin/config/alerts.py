"""`[alerts.NAME]`: who is told by a webhook when money runs out, or something else goes wrong."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tiffin.config.fields import Seconds, Text

EventName = Literal[
    "budget.threshold", "budget.runout", "ledger.variance", "model.failed", "key.anomaly"
]
Days = Annotated[float, Meta(gt=0, le=366)]
Percentage = Annotated[float, Meta(ge=0, le=1000)]

EVERYTHING: tuple[EventName, ...] = (
    "budget.threshold",
    "budget.runout",
    "ledger.variance",
    "model.failed",
    "key.anomaly",
)


class Alert(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[alerts.NAME]`: exactly one of `key_env`, `key_file`, `key_command` signs what is sent.

    `events` are what `url` is told of; where `tenants` are named, only of budgets and keys of
    theirs. A budget that may run out within `runout_days`, an invoice that differs from the prices
    by more than `variance_percent`, a model that has failed for `failed_after_s`: nothing less is
    told.
    """

    url: Text
    key_env: str = ""
    key_file: str = ""
    key_command: list[str] = []
    events: tuple[EventName, ...] = EVERYTHING
    tenants: tuple[Text, ...] = ()
    runout_days: Days = 3.0
    variance_percent: Percentage = 1.0
    failed_after_s: Seconds = 300.0
