"""The pages and their code blocks, as values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One code block: its page, the line that it begins on, its language and text."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page that people read."""
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def blocks(language: str) -> list[Block]:
    """Every code block of a language, in order."""
    return [block for page in pages() for block in _blocks(page) if block.language == language]


def commands() -> list[tuple[Block, str]]:
    """Every line of a console block that somebody would type, without its `$`."""
    return [
        (block, line.removeprefix("$ "))
        for block in blocks("console")
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
