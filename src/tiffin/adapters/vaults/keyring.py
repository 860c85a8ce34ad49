"""Tenants' data keys as files, each wrapped with a master key by AES-256-GCM.

A tenant's newest key encrypts what is new; the others open what is older. Removing the files
destroys the keys, and with them everything that they encrypt.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tiffin.adapters.vaults.masters import KEY_BYTES, Master, Masters
from tiffin.errors import ConfigInvalid, Unavailable

NONCE_BYTES: Final = 12
ID_BYTES: Final = 12
SUFFIX: Final = ".json"
ERASED: Final = ".erased"
UNFINISHED: Final = ".tmp"
LEFT_S: Final = 60.0
"""A file that is unfinished for so long is a dead process's."""


class WrappedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A file: which key of whom, by which master it is wrapped, and the wrapped bytes."""

    v: int = 1
    tenant: str
    id: str
    master: str
    wrapped: bytes

    @property
    def made_ns(self) -> int:
        """When it was made (UTC); its id begins with that."""
        return int(self.id[:16], 16)


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key, ready for use; `id` is in front of everything that it sealed."""

    id: bytes
    cipher: AESGCM


class Keyring:
    """The keys below one folder; raises `Unavailable` where a key can't be read or unwrapped."""

    def __init__(self, folder: Path, masters: Masters) -> None:
        self._folder = folder
        self._masters = masters

    def master(self) -> str:
        """The id of the master key that keys are wrapped with now; raises `ConfigInvalid`."""
        return self._masters.current().id

    def mark(self, tenant: str) -> int:
        """Another number whenever the tenant's keys may be others; 0 where it has none."""
        try:
            return self._of(tenant).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def keys(self, tenant: str, known: Sequence[DataKey] = ()) -> list[DataKey]:
        """The tenant's keys, the newest last. Those that are `known` aren't unwrapped again: so by
        which master key they are wrapped now doesn't matter."""
        have = {key.id.hex(): key for key in known}
        with _failures(tenant):
            found = [self._read(path) for path in self._files(self._of(tenant))]
            return [have.get(wrapped.id) or self._unwrapped(wrapped) for wrapped in found]

    def rotate(self, tenant: str) -> DataKey:
        """Give the tenant a new key, which is used from now on."""
        with _failures(tenant):
            folder = self._of(tenant)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            name = f"{time.time_ns():016x}{secrets.token_hex(ID_BYTES - 8)}"
            key = secrets.token_bytes(KEY_BYTES)
            self._write(folder / (name + SUFFIX), self._wrap(tenant, name, key))
            return DataKey(bytes.fromhex(name), AESGCM(key))

    def rewrap(self) -> int:
        """Wrap every key with the current master; how many weren't. All stay readable meanwhile.

        What processes that died left half done is removed.
        """
        self._sweep()
        current, count = self._masters.current().id, 0
        for path in self._everything():
            wrapped = self._read(path)
            if wrapped.master != current:
                with _failures(wrapped.tenant):
                    fresh = self._wrap(wrapped.tenant, wrapped.id, self._plain(wrapped))
                    self._write(path, fresh)
                    count += 1
        return count

    def erase(self, tenant: str) -> int:
        """Destroy all keys of a tenant, also those that an interrupted erasing left; how many."""
        with _failures(tenant):
            folder = self._of(tenant)
            # Under another name it is nobody's, also where removing it is interrupted.
            with contextlib.suppress(FileNotFoundError):
                folder.rename(folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{ERASED}"))
            count = 0
            for gone in self._folder.glob(f"{folder.name}.*{ERASED}"):
                count += len(self._files(gone))
                shutil.rmtree(gone)
            return count

    def census(self) -> dict[str, list[WrappedKey]]:
        """All keys by tenant, the newest last; they stay wrapped."""
        found: dict[str, list[WrappedKey]] = {}
        for path in self._everything():
            wrapped = self._read(path)
            found.setdefault(wrapped.tenant, []).append(wrapped)
        return found

    def _of(self, tenant: str) -> Path:
        # Names of tenants may have letters that files can't.
        return self._folder / hashlib.sha256(tenant.encode()).hexdigest()[:32]

    def _files(self, folder: Path) -> list[Path]:
        return sorted(folder.glob("*" + SUFFIX))

    def _everything(self) -> Iterator[Path]:
        for folder in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if folder.is_dir() and not folder.name.endswith(ERASED):
                yield from self._files(folder)

    def _sweep(self) -> None:
        """Finish what was to be erased; remove keys that were never whole, but none just begun."""
        for gone in self._folder.glob(f"*{ERASED}"):
            shutil.rmtree(gone, ignore_errors=True)
        for path in self._folder.glob(f"*/*{UNFINISHED}"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > LEFT_S:
                    path.unlink()

    def _read(self, path: Path) -> WrappedKey:
        return msgspec.json.decode(path.read_bytes(), type=WrappedKey)

    def _unwrapped(self, wrapped: WrappedKey) -> DataKey:
        return DataKey(bytes.fromhex(wrapped.id), AESGCM(self._plain(wrapped)))

    def _plain(self, wrapped: WrappedKey) -> bytes:
        master = self._masters.find(wrapped.master)
        if master is None:
            raise Unavailable(
                f"a key of the tenant '{wrapped.tenant}' is wrapped with the master key"
                f" {wrapped.master}, which isn't here; name it in [server.vault.previous]"
            )
        nonce, rest = wrapped.wrapped[:NONCE_BYTES], wrapped.wrapped[NONCE_BYTES:]
        return AESGCM(master.key).decrypt(nonce, rest, _about(wrapped.tenant, wrapped.id))

    def _wrap(self, tenant: str, name: str, key: bytes) -> WrappedKey:
        master: Master = self._masters.current()
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + AESGCM(master.key).encrypt(nonce, key, _about(tenant, name))
        return WrappedKey(tenant=tenant, id=name, master=master.id, wrapped=sealed)

    def _write(self, path: Path, wrapped: WrappedKey) -> None:
        fresh = path.with_suffix(f".{secrets.token_hex(4)}{UNFINISHED}")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(wrapped))
                file.flush()
                os.fsync(fd)
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)  # a full disk is tried again and again
            raise


@contextlib.contextmanager
def _failures(tenant: str) -> Iterator[None]:
    """What can go wrong with a key, told without anything of it."""
    try:
        yield
    except (InvalidTag, msgspec.DecodeError, ValueError) as cause:
        raise Unavailable(f"a key of the tenant '{tenant}' is damaged") from cause
    except ConfigInvalid as cause:
        raise Unavailable(f"the master key can't be had: {cause.message}") from cause
    except OSError as cause:
        reason = cause.strerror or type(cause).__name__
        raise Unavailable(f"keys of the tenant '{tenant}' can't be had ({reason})") from cause


def _about(tenant: str, name: str) -> bytes:
    return msgspec.json.encode(["tiffin data key", tenant, name])
