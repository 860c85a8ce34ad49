"""The paths of models: `/v2/models/{model}[/versions/{version}][/{verb}]`, read and written."""

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from tiffin.types.revisions import name_of

MODELS = b"/v2/models/"


class Place(NamedTuple):
    """What a path names: a model, maybe a version of it, and what is asked of it (or nothing)."""

    model: str
    version: str
    verb: str

    @property
    def name(self) -> str:
        """What is asked, as everybody else calls it: `MODEL@VERSION` where it has one."""
        return name_of(self.model, self.version) if self.version else self.model


NOWHERE: Final = Place("", "", "")


def place_of(path: bytes) -> Place | None:
    """What a path below `MODELS` names; None where it has another form."""
    parts = path[len(MODELS) :].decode("latin-1").split("/")
    version = ""
    if len(parts) >= 3 and parts[1] == "versions":
        version = parts[2]
        if not version:
            return None
        del parts[1:3]
    if len(parts) > 2 or not all(parts):
        return None
    model = parts[0]
    if "%" in model:
        model = unquote(model, errors="replace")
    return Place(model, version, parts[1] if len(parts) == 2 else "")


@lru_cache(256)
def path_of(model: str, verb: str = "") -> bytes:
    """Where a server has a model, whatever its version."""
    name = quote(model, safe="")
    return f"/v2/models/{name}/{verb}".encode() if verb else f"/v2/models/{name}".encode()
