"""YAML that somebody else wrote, as plain values within bounds: no tags, no bombs, no cycles."""

from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from tiffin.errors import ConfigInvalid

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 100_000
MAX_DEPTH: Final = 32


def read_yaml(path: Path) -> Any:
    """What a file says; raises `ConfigInvalid`.

    Values that are used again by an alias count each time, so that few lines can't become many.
    """
    try:
        if not path.is_file():  # a pipe would be waited for
            raise ConfigInvalid("there is no such file", where=str(path))
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as cause:
        raise ConfigInvalid(f"can't be read: {cause.strerror}", where=str(path)) from cause
    if len(content) > MAX_BYTES:
        raise ConfigInvalid(f"longer than {MAX_BYTES} bytes", where=str(path))
    return parsed(content, str(path))


def parsed(content: bytes, source: str) -> Any:
    """What a text in YAML says; raises `ConfigInvalid`."""
    try:
        tree = yaml.safe_load(content)
    except yaml.YAMLError as cause:
        raise ConfigInvalid(f"not YAML: {' '.join(_reason(cause).split())}", where=source) from None
    except (ValueError, RecursionError, TypeError) as cause:  # of odd dates, numbers and keys
        raise ConfigInvalid(
            f"not YAML that can be read: {type(cause).__name__}", where=source
        ) from None
    _refuse_endless(tree, source)
    return tree


def _reason(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the lines themselves: they may hold keys."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        return f"{error.problem}" + (f" in line {mark.line + 1}" if mark else "")
    return str(error).partition("\n")[0]


def _refuse_endless(tree: Any, source: str) -> None:
    level, count = [tree], 0
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += [*value.values(), *value.keys()]
            elif isinstance(value, list | set | tuple):
                inner += value
            if count + len(inner) > MAX_VALUES:
                raise ConfigInvalid(f"it has more than {MAX_VALUES} values", where=source)
        count += len(inner)
        if not inner:
            return
        level = inner
    raise ConfigInvalid(f"it is nested over {MAX_DEPTH} deep", where=source)
