"""References to secrets: variables that there are, and names for those that stood in the file."""

import re
from collections.abc import Mapping
from typing import Final

from tiffin.adapters.importers.litellm.report import Report

REFERENCE: Final = "os.environ/"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Secrets:
    """Gives every secret the name of a variable; a secret itself goes nowhere."""

    def __init__(self, report: Report, environ: Mapping[str, str]) -> None:
        self._report = report
        self._environ = environ
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def variable(self, value: str, where: str, wish: str) -> str:
        """The variable that holds a secret; `wish` is its name where it stood in the file."""
        named = referred(value)
        if named:
            self._taken.add(named)
            return named
        if not value or value.startswith(REFERENCE):
            return ""
        name = self._names.get(value)
        if name is None:
            name = self._names[value] = self._free(wish)
        self._report.to_do(where, f"put the key that stands there into the variable {name}")
        return name

    def fresh(self, wish: str) -> str:
        """A variable for a secret that is put together from several."""
        return self._free(wish)

    def plain(self, value: str, where: str) -> str:
        """A text that is no secret, from the environment where it refers to that; else empty."""
        named = referred(value)
        if not named:
            return value
        found = self._environ.get(named, "").strip()
        if found:
            self._report.different(where, f"taken from the variable {named} as it is set now")
        return found

    def was_set(self, name: str, where: str) -> None:
        """The file itself set a variable; nothing of that is taken over."""
        if name in self._taken:
            self._report.to_do(where, "set it in the server's own environment")
        else:
            self._report.dropped(where, "no setting here reads it")

    def _free(self, wish: str) -> str:
        start = re.sub(r"[^A-Z0-9]+", "_", wish.upper()).strip("_") or "KEY"
        start = f"_{start}" if start[0].isdigit() else start
        name, number = start, 2
        while name in self._taken:
            name, number = f"{start}_{number}", number + 1
        self._taken.add(name)
        return name


def referred(value: str) -> str:
    """The variable that a text refers to, empty where it refers to none."""
    name = value.removeprefix(REFERENCE) if value.startswith(REFERENCE) else ""
    return name if _VARIABLE.fullmatch(name) else ""
