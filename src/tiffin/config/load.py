"""From a file and the environment to one checked configuration, its hash and what may be shown."""

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from tiffin.config import revisions, rules, shape
from tiffin.config.environ import environment, overridden
from tiffin.config.schema import CONFIG_VERSION, Config, Tree
from tiffin.errors import ConfigInvalid

MAX_FILE_BYTES = 4 << 20

UPGRADERS: Mapping[int, Callable[[Tree], Tree]] = {}
"""How a tree of a version becomes one of the next; none yet, since there is one version."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be used.

    `tree` is all of it with defaults filled in and credentials masked; `sha256` identifies it,
    whatever the order or layout of the file; `source` says where it came from, `text` is how it was
    given, where somebody wrote it.
    """

    config: Config
    tree: Tree
    sha256: str
    source: str
    text: bytes | None = None


def load(path: Path | None, environ: Mapping[str, str] | None = None) -> Loaded:
    """The configuration of a file, or of no file at all; raises `ConfigInvalid`."""
    if path is None:
        return load_tree({}, environ, source="defaults")
    try:
        if path.is_fifo():  # opening it would wait for its writer
            raise ConfigInvalid("is a pipe; give the path of a file", where=str(path))
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as cause:
        raise ConfigInvalid(f"can't be read: {cause.strerror}", where=str(path)) from cause
    return load_text(text, environ, source=str(path))


def load_text(
    text: bytes, environ: Mapping[str, str] | None = None, *, source: str = "text"
) -> Loaded:
    """The configuration that a text in TOML gives; raises `ConfigInvalid`."""
    if len(text) > MAX_FILE_BYTES:
        raise ConfigInvalid(f"longer than {MAX_FILE_BYTES} bytes", where=source)
    try:
        tree = tomllib.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError as cause:
        line = text.count(b"\n", 0, cause.start) + 1
        raise ConfigInvalid(f"not UTF-8 in line {line}", where=source) from cause
    except ValueError as cause:  # TOML's own error, or Python's of a number with too many digits
        last = text.rstrip().count(b"\n") + 1
        reason = str(cause).replace("at end of document", f"at line {last}, the last")
        raise ConfigInvalid(f"not TOML: {reason}", where=source) from cause
    except RecursionError as cause:
        raise ConfigInvalid("nested too deeply", where=source) from cause
    return replace(load_tree(tree, environ, source=source), text=text)


def load_tree(
    tree: Tree, environ: Mapping[str, str] | None = None, *, source: str = "tree"
) -> Loaded:
    """The configuration that a tree gives, with the environment over it; raises `ConfigInvalid`."""
    current = overridden(upgraded(tree), environment() if environ is None else environ)
    _refuse(list(shape.misfits(shape.root(), current)))
    _refuse(list(revisions.misfits(current)))
    config = msgspec.convert(revisions.expanded(current), Config)
    _refuse(list(rules.broken(config)))
    return Loaded(config, redacted(config), digest(config), source)


def upgraded(tree: Tree) -> Tree:
    """The tree in the format of this version; raises `ConfigInvalid` for one of the future."""
    version = tree.get("version", CONFIG_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ConfigInvalid(
            f"found {shape.shown(version)}, expected {CONFIG_VERSION}", where="version"
        )
    if version > CONFIG_VERSION:
        raise ConfigInvalid(
            f"this file is of version {version}, and this Tiffin reads up to {CONFIG_VERSION};"
            " a newer Tiffin is needed",
            where="version",
        )
    while version < CONFIG_VERSION:
        tree = UPGRADERS[version](tree)
        version += 1
    return tree


def digest(config: Config) -> str:
    """The sha256 of a configuration in one canonical form."""
    return hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()


def redacted(config: Config) -> Tree:
    """The whole tree as it may be shown."""
    tree: Tree = masked(msgspec.to_builtins(config))
    return tree


def masked(value: Any, name: str = "") -> Any:
    """A setting as it may be shown: addresses without user, password and query, and of a program
    that prints a secret only its path."""
    if name.endswith("_command") and isinstance(value, list):
        return [*value[:1], *("***" for _ in value[1:])]
    if isinstance(value, dict):
        return {inner_name: masked(inner, inner_name) for inner_name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(inner) for inner in value]
    if isinstance(value, str) and "://" in value:
        return _masked_url(value)
    return value


def _masked_url(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        return "***"
    user, at, host = parts.netloc.rpartition("@")
    netloc = f"***@{host}" if at and user else parts.netloc
    return urlunsplit(
        (parts.scheme, netloc, parts.path, "***" if parts.query else "", parts.fragment)
    )


def _refuse(problems: list[shape.Problem]) -> None:
    """Raise one error that tells of all problems, and stands at the first."""
    if problems:
        first, *rest = problems
        message = "\n".join([first.message, *(str(problem) for problem in rest)])
        raise ConfigInvalid(message, where=first.where)
