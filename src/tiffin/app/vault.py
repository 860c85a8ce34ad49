"""The vault of a data folder, put together from its settings."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tiffin.app.masters import masters
from tiffin.config.vault import Vault as Settings
from tiffin.ports.vault import Label, Vault

if TYPE_CHECKING:
    from tiffin.adapters.vaults.keyring import Keyring


def keyring(folder: Path, settings: Settings) -> "Keyring":
    """The tenants' keys in a folder; what `settings` refer to is read when it is first needed."""
    from tiffin.adapters.vaults.keyring import Keyring
    from tiffin.adapters.vaults.masters import Masters

    return Keyring(folder, Masters(lambda: masters(folder, settings)))


def open_vault(folder: Path, settings: Settings) -> Vault:
    """What encrypts with the keys of that folder."""
    from tiffin.adapters.vaults.envelope import EnvelopeVault

    return EnvelopeVault(keyring(folder, settings), time.monotonic)


class LaterVault:
    """A vault that is opened when it is first needed; satisfies `ports.vault.Vault`."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: Vault | None = None

    def ready(self, tenant: str) -> bool:
        """Whether nothing here waits for now."""
        return self._opened is not None and self._opened.ready(tenant)

    def prepare(self, tenant: str) -> None:
        """Have a key for this tenant."""
        self._vault().prepare(tenant)

    def seal(self, label: Label, content: bytes) -> bytes:
        """The content, sealed."""
        return self._vault().seal(label, content)

    def open(self, label: Label, sealed: bytes) -> bytes:
        """What was sealed."""
        return self._vault().open(label, sealed)

    def _vault(self) -> Vault:
        with self._lock:
            if self._opened is None:
                self._opened = open_vault(self._folder, self._settings)
            return self._opened
