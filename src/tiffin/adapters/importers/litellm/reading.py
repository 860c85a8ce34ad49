"""A section of somebody's file that knows what was taken of it, so that nothing is left unsaid."""

from collections.abc import Iterator, Mapping
from typing import Any

from tiffin.adapters.importers.litellm.report import Report
from tiffin.config.fields import YEAR_S

UNKNOWN = "there is nothing here that does it"


class Section:
    """A mapping at a place of the file; what isn't one is as an empty one, and reported."""

    def __init__(self, tree: Any, where: str, report: Report) -> None:
        self.where = where
        self.report = report
        self._tree: dict[str, Any] = {}
        if isinstance(tree, dict):
            self._tree = {str(name): value for name, value in tree.items()}
        elif tree is not None:
            report.dropped(where, "expected a mapping, found something else")
        self._taken: set[str] = set()

    def at(self, name: str) -> str:
        """The path of a name in it."""
        return f"{self.where}.{name}" if self.where else name

    def raw(self, name: str) -> Any:
        """A value as it stands there, None where it doesn't."""
        self._taken.add(name)
        return self._tree.get(name)

    def text(self, name: str) -> str:
        """A text, empty where there is none."""
        value = self.raw(name)
        if value is None or isinstance(value, str):
            return (value or "").strip()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        self.report.dropped(self.at(name), "expected a text")
        return ""

    def number(self, name: str) -> float:
        """A number above 0, else 0."""
        value = self.raw(name)
        if value is None or value is False:
            return 0.0
        try:
            found = float(value) if not isinstance(value, bool) else -1.0
        except (TypeError, ValueError, OverflowError):
            found = -1.0
        if not 0 <= found < 1e12:
            self.report.dropped(self.at(name), "expected a number")
            return 0.0
        return found

    def seconds(self, name: str) -> float:
        """A time of a year at most, 0 where there is none."""
        return min(self.number(name), YEAR_S)

    def flag(self, name: str) -> bool:
        """Whether something is switched on."""
        return self.raw(name) in (True, "true", "True")

    def section(self, name: str) -> "Section":
        """The section of a name, an empty one where there is none."""
        return Section(self.raw(name), self.at(name), self.report)

    def entries(self, name: str) -> list["Section"]:
        """The sections of a list."""
        return [Section(one, f"{self.at(name)}[{at}]", self.report) for at, one in self.items(name)]

    def items(self, name: str) -> Iterator[tuple[int, Any]]:
        """The items of a list with their numbers; a single text is a list of it."""
        value = self.raw(name)
        if isinstance(value, str):
            value = [value]
        if value is not None and not isinstance(value, list):
            self.report.dropped(self.at(name), "expected a list")
        return enumerate(value if isinstance(value, list) else ())

    def names(self) -> list[str]:
        """The names of everything in it."""
        return list(self._tree)

    def leave(self, reasons: Mapping[str, str]) -> None:
        """Report all that nobody took, with the reason of its name where there is one."""
        for name in self._tree:
            if name not in self._taken:
                self.report.dropped(self.at(name), reasons.get(name, UNKNOWN))
