"""What settings that refer to secrets and files must keep to: one reference, and a whole path."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from tiffin.config.shape import Problem
from tiffin.types.tls import Tls

WAYS = ("key_env", "key_file", "key_command")
"""Where a secret can be: in a variable, in a file, or in what a program prints."""


def broken_reference(
    section: Any, where: str, *, needed: bool, ways: Sequence[str] = WAYS
) -> Iterator[Problem]:
    """Every rule that a section's reference to a secret breaks."""
    given = [name for name in ways if getattr(section, name)]
    if needed and len(given) != 1:
        yield Problem(where, f"expected exactly one of {', '.join(ways)}")
    elif len(given) > 1:
        yield Problem(where, f"expected one of {', '.join(ways)}, or none where none is needed")
    yield from broken_path(section.key_file, f"{where}.key_file")
    command = section.key_command
    if command:
        yield from broken_path(command[0] or ".", f"{where}.key_command[0]")


def broken_path(path: str, where: str) -> Iterator[Problem]:
    """That a path would mean another file wherever it is read; an empty one is none."""
    if path and not path.startswith("~") and not PurePath(path).is_absolute():
        yield Problem(where, "expected an absolute path, or one that begins with ~/")


def broken_tls(tls: Tls, where: str = "server.tls") -> Iterator[Problem]:
    """Every rule that `[server.tls]` breaks."""
    yield from broken_path(tls.certificate, f"{where}.certificate")
    yield from broken_path(tls.client_ca, f"{where}.client_ca")
    yield from broken_reference(tls, where, needed=tls.on)
    if not tls.on and tls != Tls():
        yield Problem(f"{where}.certificate", "missing: without it the rest has no meaning")
    if tls.client != "none" and not tls.client_ca:
        yield Problem(f"{where}.client_ca", "missing: which authority are clients' from?")
    if tls.client == "none" and tls.client_ca:
        yield Problem(f"{where}.client", 'missing: "required" or "optional"; "none" asks nobody')
