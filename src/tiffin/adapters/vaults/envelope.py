"""Content under AES-256-GCM with its tenant's data key; satisfies `ports.vault.Vault`.

Sealed content is a version, the data key's id, a nonce, and what AES-GCM makes of the content with
the label as associated data.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag

from tiffin.adapters.vaults.keyring import ID_BYTES, NONCE_BYTES, DataKey, Keyring
from tiffin.errors import NotFound
from tiffin.ports.vault import Label

VERSION: Final = b"\x01"
LOOK_EVERY_S: Final = 1.0
MAX_TENANTS: Final = 4096


@dataclass(slots=True)
class Known:
    """A tenant's keys as they were when somebody last looked."""

    keys: list[DataKey]
    mark: int
    looked_s: float


class EnvelopeVault:
    """Keeps the keys that are in use in memory, and looks every second whether they are others."""

    def __init__(self, keyring: Keyring, now_s: Callable[[], float]) -> None:
        self._keyring = keyring
        self._now_s = now_s
        self._known: OrderedDict[str, Known] = OrderedDict()

    def ready(self, tenant: str) -> bool:
        """Whether the tenant has a key here, and somebody looked at it within the last second."""
        known = self._known.get(tenant)
        fresh = known is not None and self._now_s() - known.looked_s < LOOK_EVERY_S
        return fresh and known is not None and bool(known.keys)

    def prepare(self, tenant: str) -> None:
        """Have a key for this tenant."""
        known = self._look(tenant)
        if not known.keys:
            known.keys.append(self._keyring.rotate(tenant))
            known.mark = self._keyring.mark(tenant)

    def seal(self, label: Label, content: bytes) -> bytes:
        """The content, sealed."""
        known = self._known.get(label.tenant)
        if known is None or not known.keys:
            self.prepare(label.tenant)
            known = self._look(label.tenant)
        key = known.keys[-1]
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = key.cipher.encrypt(nonce, content, _about(label))
        return b"".join((VERSION, key.id, nonce, sealed))

    def open(self, label: Label, sealed: bytes) -> bytes:
        """What was sealed."""
        name, rest = sealed[1 : 1 + ID_BYTES], sealed[1 + ID_BYTES :]
        key = self._find(label.tenant, name)
        if key is None or sealed[:1] != VERSION:
            raise NotFound("the key of this content was destroyed, or it isn't sealed content")
        try:
            return key.cipher.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], _about(label))
        except (InvalidTag, ValueError) as cause:
            raise NotFound("this content isn't what was sealed under this label") from cause

    def _find(self, tenant: str, name: bytes) -> DataKey | None:
        """The key of this id, also where it was made a moment ago."""
        for _ in range(2):
            for key in self._look(tenant).keys:
                if key.id == name:
                    return key
            self._known.pop(tenant, None)
        return None

    def _look(self, tenant: str) -> Known:
        """The tenant's keys, read again where they may have changed."""
        now_s, known = self._now_s(), self._known.get(tenant)
        if known is not None and now_s - known.looked_s < LOOK_EVERY_S:
            return known
        mark = self._keyring.mark(tenant)
        if known is None or known.mark != mark:
            before = known.keys if known is not None else ()
            known = Known(self._keyring.keys(tenant, before) if mark else [], mark, now_s)
        known.looked_s = now_s
        self._known[tenant] = known
        self._known.move_to_end(tenant)
        if len(self._known) > MAX_TENANTS:
            self._known.popitem(last=False)
        return known


def _about(label: Label) -> bytes:
    return msgspec.json.encode(list(label))
