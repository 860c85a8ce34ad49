"""A chat's errors in terms of the request that became the chat."""

import re
from collections.abc import Mapping, Sequence

from tiffin.errors import TiffinError

Names = Sequence[tuple[re.Pattern[str], str]]
"""What a chat calls it, and what the client called it."""

Places = Mapping[str, str]
"""Where each message of a chat, or part of one, comes from: a list's item, or a whole field."""

_QUOTED = re.compile(r"'([^']+)'")


def renamed(error: TiffinError, names: Names, places: Places) -> TiffinError:
    """The same error that names what the client sent, in its message and as its `param`."""
    if error.param is None:
        return error
    param = rename(error.param, names, places)
    if param == error.param:
        return error
    message = _QUOTED.sub(lambda found: f"'{rename(found[1], names, places)}'", error.message)
    return type(error)(message, retry_after=error.retry_after, param=param)


def rename(param: str, names: Names, places: Places) -> str:
    """The client's name of a chat's parameter; of a place that is a whole field, that alone."""
    for end in (at for at in range(len(param), 0, -1) if param[at - 1] == "]"):
        place = places.get(param[:end])
        if place is not None:
            return place + param[end:] if place.endswith("]") else place
    for pattern, name in names:
        found = pattern.match(param)
        if found is not None:
            return found.expand(name) + param[found.end() :]
    return param
