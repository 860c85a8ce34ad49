"""The source tree as values, read once: what the architecture tests look at."""

import ast
import functools
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
TESTS = ROOT / "tests"


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file: its dotted name, path, lines and syntax tree."""

    name: str
    path: Path
    lines: int
    syntax: ast.Module

    def __str__(self) -> str:
        return self.name


def read(path: Path, below: Path) -> Module:
    """The module at `path`, named from the folder `below`."""
    text = path.read_text()
    name = ".".join(path.relative_to(below).with_suffix("").parts).removesuffix(".__init__")
    return Module(name, path, text.count("\n"), ast.parse(text))


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    return tuple(read(path, SOURCE) for path in sorted(SOURCE.glob("tiffin/**/*.py")))


@functools.cache
def checks() -> tuple[Module, ...]:
    """Every module of the tests."""
    return tuple(read(path, ROOT) for path in sorted(TESTS.glob("**/*.py")))


@functools.cache
def tracked() -> tuple[Path, ...]:
    """Every file that git tracks, or would on the next `git add`, and that exists."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = (ROOT / name.decode() for name in listing.stdout.split(b"\0") if name)
    return tuple(path for path in paths if path.is_file())


def in_fresh_python(code: str) -> str:
    """What a new interpreter prints that runs `code`; fails with its error output."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
