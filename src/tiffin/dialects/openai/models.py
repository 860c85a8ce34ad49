"""The bodies of `/v1/models` and `/v1/models/{model}`."""

from collections.abc import Iterable

import msgspec

from tiffin.types.snapshot import Plan


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One public name; `created` is Unix seconds."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "tiffin"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """All names that a key may use."""

    object: str = "list"
    data: list[Model]


def model_body(plan: Plan) -> bytes:
    """One model."""
    return msgspec.json.encode(_model(plan))


def model_list_body(plans: Iterable[Plan]) -> bytes:
    """The listing, in the order given."""
    return msgspec.json.encode(ModelList(data=[_model(plan) for plan in plans]))


def _model(plan: Plan) -> Model:
    return Model(id=plan.name, created=plan.created)
