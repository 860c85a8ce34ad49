"""The configurations that were in force: the last few, as they were given, with who and when."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from tiffin.config.load import Loaded
from tiffin.errors import ConfigInvalid
from tiffin.types.json_file import read_json
from tiffin.types.whole_file import replace_file

MOST: Final = 20


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration: `by` had it taken at `at_ns` (UTC). Without `toml` it is the starter's."""

    number: int
    at_ns: int
    by: str
    source: str
    sha256: str
    toml: str | None = None


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of one: without its text, which may have arguments of programs."""

    number: int
    at_ns: int
    by: str
    source: str
    sha256: str
    in_force: bool = False


class History:
    """A folder with a file for each, numbered upwards; the oldest go. Methods raise `OSError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, loaded: Loaded, by: str, now_ns: int) -> Callable[[], None]:
        """Keep what is in force from now on, unless it was already; what is given undoes that."""
        numbers = self._numbers()
        newest = next(self._read(numbers), None)
        if newest is not None and newest.sha256 == loaded.sha256:
            return _nothing
        self._folder.mkdir(mode=0o700, exist_ok=True)
        number = numbers[0] + 1 if numbers else 1
        fresh = Kept(
            number=number,
            at_ns=now_ns,
            by=by,
            source=loaded.source,
            sha256=loaded.sha256,
            toml=None if loaded.text is None else loaded.text.decode("utf-8-sig"),
        )
        replace_file(self._path(number), msgspec.json.encode(fresh))
        for old in numbers[MOST - 1 :]:
            self._path(old).unlink(missing_ok=True)
        return lambda: self._path(number).unlink(missing_ok=True)

    def kept(self) -> list[Kept]:
        """All, the newest first; one that can't be read is left out."""
        return list(self._read(self._numbers()))

    def find(self, number: int, in_force: str) -> Kept:
        """The one of this number; 0 is the newest that isn't `in_force`, a sha256.

        Raises `ConfigInvalid` where there is none.
        """
        kept = self.kept()
        for one in kept:
            if one.number == number or (not number and one.sha256 != in_force):
                return one
        if not number:
            raise ConfigInvalid("no configuration before this one is kept")
        there = ", ".join(str(one.number) for one in kept) or "none"
        raise ConfigInvalid(f"no configuration {number} is kept; there are: {there}")

    def _read(self, numbers: list[int]) -> Iterator[Kept]:
        for number in numbers:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                yield read_json(self._path(number), Kept)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}.json"

    def _numbers(self) -> list[int]:
        try:
            names = [path.stem for path in self._folder.iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def _nothing() -> None:
    """There was nothing to do."""
