"""The commented `tiffin.toml` that `tiffin init` writes, and what it says about each setting."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

EXTRAS = ("ocr",)

_SECTION = re.compile(r'#?\[{1,2}([\w."-]+)\]{1,2}$')
_SETTING = re.compile(r"#?([a-z0-9_]+) = (.*)$")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as the template shows it: where it stands, its value, and what it means."""

    section: str
    name: str
    value: str
    meaning: str


def text() -> str:
    """The template as it is written to disk."""
    return resources.files("tiffin.cli").joinpath("template.toml").read_text(encoding="utf-8")


def sections_of(name: str) -> str:
    """The sections of one of `EXTRAS`, which the template doesn't have."""
    folder = resources.files("tiffin").joinpath("starter")
    return folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def uncommented() -> str:
    """The template with every setting and section switched on."""
    return re.sub(r"^#(?=\S)", "", text(), flags=re.MULTILINE)


def settings() -> Iterator[Setting]:
    """Every setting that the template explains, in its order; those without a word are left out."""
    section = ""
    meaning: list[str] = []
    for line in text().splitlines():
        if line.startswith("# "):
            meaning.append(line[2:])
            continue
        if found := _SECTION.match(line):
            section = found[1]
        elif (found := _SETTING.match(line)) and meaning:
            yield Setting(section, found[1], found[2], " ".join(meaning))
        meaning = []


def tree() -> dict[str, object]:
    """The template with everything switched on, parsed."""
    return tomllib.loads(uncommented())
