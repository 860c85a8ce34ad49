"""`tiffin config import`: from another gateway's configuration to one of ours, with a report."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tiffin.adapters.importers.litellm.report import Fate, Report
from tiffin.cli.section import undisturbed, write_whole
from tiffin.cli.toml_text import toml_text
from tiffin.config.environ import environment
from tiffin.config.load import load_text
from tiffin.errors import ConfigInvalid, Conflict

MAX_KEYS_BYTES: Final = 32 << 20
HEAD: Final = "# Made by `tiffin config import` from a LiteLLM configuration."


def import_litellm(path: Path, keys: Path | None, to: Path, *, overwrite: bool) -> Iterator[str]:
    """Write the configuration and tell what became of everything, line by line.

    Raises `TiffinError` with nothing written.
    """
    if to.exists() and not overwrite:
        raise Conflict(f"{to} exists; --force overwrites it")
    try:
        from tiffin.adapters.importers.yaml_file import read_yaml
    except ImportError as cause:
        raise ConfigInvalid(
            'reading YAML needs more: pip install "tiffin[litellm]"', where=str(path)
        ) from cause
    from tiffin.adapters.importers.litellm.translate import translate

    listing = None if keys is None else _listing(keys)
    found = translate(read_yaml(path), listing, environment(), datetime.now(UTC))
    text = f"{_head(found.report)}\n{toml_text(found.tree)}"
    load_text(text.encode(), {}, source=str(to))
    with undisturbed(to.absolute()):
        write_whole(to, text)
    yield from found.report.lines()
    yield f"Wrote {to}. Next: tiffin check {to}"


def _listing(path: Path) -> Any:
    """What LiteLLM's /key/list answered; raises `ConfigInvalid`, which quotes none of it."""
    try:
        if not path.is_file():
            raise ConfigInvalid("there is no such file", where=str(path))
        with path.open("rb") as file:
            content = file.read(MAX_KEYS_BYTES + 1)
        if len(content) > MAX_KEYS_BYTES:
            raise ConfigInvalid(f"longer than {MAX_KEYS_BYTES} bytes", where=str(path))
        return json.loads(content)
    except OSError as cause:
        raise ConfigInvalid(f"can't be read: {cause.strerror}", where=str(path)) from cause
    except (ValueError, RecursionError):
        raise ConfigInvalid("not JSON", where=str(path)) from None


def _head(report: Report) -> str:
    """What is left to do, as comments."""
    left = [note for note in report.notes if note.fate is Fate.TO_DO]
    lines = [HEAD, *(f"# To do: {note.where}: {note.text}" for note in left)]
    return "".join("".join(c if c.isprintable() else " " for c in line) + "\n" for line in lines)
