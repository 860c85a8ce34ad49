"""`[terms.CLASS]`: what an upstream must promise before it is sent data of a class."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tiffin.config.remote import RemoteModel

DaysOrAny = Annotated[int, Meta(ge=-1, le=36_500)]


class DataTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data of a class are kept there for `retains_days` at most (-1: as long as it likes), and it
    learns from them only where `trains` is true."""

    retains_days: DaysOrAny = -1
    trains: bool = False


USUAL: Final[Mapping[str, DataTerms]] = {
    "public": DataTerms(trains=True),
    "internal": DataTerms(),
    "confidential": DataTerms(retains_days=30),
    "restricted": DataTerms(retains_days=0),
}
"""What holds for a class without a section, for upstreams that say what they do."""


def unfit(model: RemoteModel, terms: Mapping[str, DataTerms]) -> tuple[tuple[str, str], ...]:
    """The classes of data that a model mustn't be sent by its terms, each with the reason."""
    found = ((name, _reason(model, name, terms.get(name))) for name in USUAL)
    return tuple((name, reason) for name, reason in found if reason)


def _reason(model: RemoteModel, name: str, said: DataTerms | None) -> str:
    """Why not; what an upstream doesn't say counts where a section asks for it."""
    wanted = said or USUAL[name]
    if not wanted.trains:
        if model.trains:
            return f"it learns from what it is sent, and terms.{name}.trains forbids that"
        if model.trains is None and said is not None:
            return f"it doesn't say whether it learns from what it is sent; terms.{name} asks"
    if wanted.retains_days >= 0:
        kept = model.retains_days
        if kept is None and said is not None:
            return f"it doesn't say for how long it keeps data; terms.{name} asks"
        if kept is not None and kept > wanted.retains_days:
            return (
                f"it keeps data for {kept} days, and terms.{name}.retains_days"
                f" is {wanted.retains_days}"
            )
    return ""
