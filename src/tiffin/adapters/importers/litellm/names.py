"""Names as they may stand here: letters, digits, '.', '_' and '-', no more than 64, each once."""

import re

from tiffin.config.shape import NAME

LONGEST = 64


class Names:
    """Gives each name once, as near to what was wished as it may be."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def give(self, wish: str) -> str:
        """A name that nobody else has."""
        start = fitting(wish)
        name, number = start, 2
        while name in self._given:
            end = f"-{number}"
            name, number = start[: LONGEST - len(end)] + end, number + 1
        self._given.add(name)
        return name


def fitting(wish: str) -> str:
    """The name itself where it may stand here, else one that is like it."""
    if NAME.fullmatch(wish):
        return wish
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", wish).strip("-._")[:LONGEST]
    return name if NAME.fullmatch(name) else "unnamed"
