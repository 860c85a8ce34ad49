"""Master keys: 32 bytes each, known by a digest, read again where an unknown one is asked for."""

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiffin.errors import ConfigInvalid

KEY_BYTES: Final = 32
AGAIN_AFTER_S: Final = 5.0
EXAMPLE: Final = "32 bytes as 64 hexadecimal digits or base64, as `openssl rand -hex 32` makes them"


@dataclass(frozen=True, slots=True)
class Master:
    """One master key; `id` says which, and nothing else about it."""

    id: str
    key: bytes


class Masters:
    """The master key, and those before it, from any thread. `read` finds them, the current one
    first; it raises `ConfigInvalid`, and isn't tried again for a moment then."""

    def __init__(
        self, read: Callable[[], list[Master]], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._now_s = now_s
        self._lock = threading.Lock()
        self._known: list[Master] = []
        self._failure: ConfigInvalid | None = None
        self._again_s = 0.0

    def current(self) -> Master:
        """What keys are wrapped with from now on."""
        with self._lock:
            return (self._known or self._renewed())[0]

    def find(self, name: str) -> Master | None:
        """The key of this id, also where it became the master a moment ago."""
        with self._lock:
            return _named(name, self._known) or _named(name, self._renewed())

    def _renewed(self) -> list[Master]:
        if self._failure is not None and self._now_s() < self._again_s:
            raise ConfigInvalid(self._failure.message)
        try:
            self._known, self._failure = self._read(), None
        except ConfigInvalid as failure:
            self._failure, self._again_s = failure, self._now_s() + AGAIN_AFTER_S
            raise
        return self._known


def _named(name: str, known: list[Master]) -> Master | None:
    return next((one for one in known if one.id == name), None)


def master(text: str, where: str) -> Master:
    """A master key as it is written; raises `ConfigInvalid`."""
    key = b""
    with contextlib.suppress(ValueError, binascii.Error):
        key = (
            bytes.fromhex(text)
            if len(text) == 2 * KEY_BYTES
            else base64.b64decode(text, None, True)
        )
    if len(key) != KEY_BYTES:
        raise ConfigInvalid(f"a master key is {EXAMPLE}", where=where)
    return Master(hashlib.sha256(b"tiffin master key" + key).hexdigest()[:16], key)


def own_master(path: Path) -> Master:
    """The master key in a file of our own, made where there is none; raises `ConfigInvalid`."""
    try:
        if not path.exists():
            _make(path)
        return master(path.read_text(encoding="utf-8").strip(), str(path))
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigInvalid(f"the master key {path} can't be read: {cause}") from cause


def _make(path: Path) -> None:
    """Whoever is first makes it, and then it is whole."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
            file.flush()
            os.fsync(fd)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
