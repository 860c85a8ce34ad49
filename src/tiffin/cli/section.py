"""A model's section in the text of a configuration: written, put in, taken out; nothing else moves.

The text is never parsed and printed anew, so comments, order and layout stay the owner's.
"""

import fcntl
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tiffin.cli.toml_text import key_text, value_text
from tiffin.config.models import Decision, File
from tiffin.errors import Conflict

MARK = "# Imported by `tiffin models import`"
_DEFAULTS: Mapping[str, object] = msgspec.structs.asdict(Decision())


def section(
    name: str,
    runtime: str,
    settings: Mapping[str, Any],
    files: Mapping[str, File],
    decision: Decision | None,
    remark: str,
) -> str:
    """The section of one model; `remark` says in a line where it came from.

    A runtime of one file (llamacpp) has it in the section itself.
    """
    path = f"models.{key_text(name)}"
    said = "".join(letter if letter.isprintable() else " " for letter in remark)
    lines = [f"{MARK}: {said}", f"[{path}]", f"runtime = {value_text(runtime)}"]
    whole = runtime == "llamacpp"
    for file in files.values() if whole else ():
        lines += _file(file)
    lines += [f"{key_text(key)} = {value_text(value)}" for key, value in settings.items()]
    for known_as, file in () if whole else files.items():
        lines += ["", f"[{path}.files.{key_text(known_as)}]", *_file(file)]
    if decision is not None:
        lines += ["", f"[{path}.decision]"]
        told = msgspec.structs.asdict(decision)
        lines += [
            f"{key} = {value_text(value)}"
            for key, value in told.items()
            if value != _DEFAULTS[key] or key in ("threshold", "labels")
        ]
    return "\n".join(lines) + "\n"


def with_section(text: str, name: str, new: str, *, replace: bool) -> str:
    """The text with the model's section; raises `Conflict` where that can't be done."""
    tree = tomllib.loads(text)
    known = tree.get("models", {})
    if not isinstance(known, dict) or name not in known:
        glue = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        return text + glue + new
    if not replace:
        raise Conflict(f"there is a model {name} already; --replace puts this one in its place")
    before, after = _without(text, name)
    left = tomllib.loads(before + after)
    rest = {key: value for key, value in known.items() if key != name}
    if left | {"models": left.get("models", {})} != tree | {"models": rest}:
        raise Conflict(
            f"the section of {name} isn't written as [models.{name}], so it can't be replaced here:"
            " take it out by hand"
        )
    gap = "\n" if after and not after.startswith("\n") else ""
    return before + new + gap + after


@contextmanager
def undisturbed(path: Path) -> Iterator[None]:
    """Keep others that ask for the same from changing a file meanwhile; raises `Conflict`."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as cause:
        raise Conflict(f"{path} can't be written: {cause.strerror}") from cause
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once, or leave it as it was; raises `Conflict`."""
    real = path.resolve()
    fresh = real.with_name(f".{real.name}.new")
    try:
        mode = real.stat().st_mode & 0o777 if real.exists() else 0o644
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(mode)
        fresh.replace(real)
    except OSError as cause:
        fresh.unlink(missing_ok=True)
        raise Conflict(f"{path} can't be written: {cause.strerror}") from cause


def _without(text: str, name: str) -> tuple[str, str]:
    """What stands before and after the model's sections."""
    before: list[str] = []
    after: list[str] = []
    seen = False
    for path, lines in _blocks(text):
        if path[:2] == ["models", name]:
            if not seen and before and before[-1].startswith(MARK):
                before.pop()
            seen = True
            after += _not_ours(lines)
        else:
            (after if seen else before).extend(lines)
    return "".join(before), "".join(after)


def _blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The text in pieces that begin with a header; the first piece has none."""
    path: list[str] = []
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        header = _header(line)
        if header is not None:
            yield path, lines
            path, lines = header, []
        lines.append(line)
    yield path, lines


def _header(line: str) -> list[str] | None:
    """The path of a line such as `[models.chat]`, or None."""
    if not line.startswith("["):
        return None
    try:
        tree: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    path = []
    while isinstance(tree, dict | list) and tree:
        if isinstance(tree, list):
            tree = tree[0]
            continue
        [(key, tree)] = tree.items()
        path.append(key)
    return path


def _not_ours(lines: list[str]) -> list[str]:
    """The comments at the end of a section, from the first empty line on: they are the next's."""
    end = len(lines)
    while end and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    tail = lines[end:]
    blank = next((at for at, line in enumerate(tail) if not line.strip()), None)
    kept = tail if blank is None else tail[blank:]
    return kept if any(line.strip() for line in kept) else []


def _file(file: File) -> list[str]:
    size = [f"size_bytes = {file.size_bytes}"] if file.size_bytes else []
    return [f"sources = {value_text(file.sources)}", f"sha256 = {value_text(file.sha256)}", *size]
