"""The vault of a data folder, put together from its settings."""

import time
from pathlib import Path

from tiffin.adapters.vaults.envelope import EnvelopeVault
from tiffin.adapters.vaults.keyring import Keyring
from tiffin.adapters.vaults.masters import Masters
from tiffin.app.masters import masters
from tiffin.config.vault import Vault


def keyring(folder: Path, settings: Vault) -> Keyring:
    """The tenants' keys in a folder; what `settings` refer to is read when it is first needed."""
    return Keyring(folder, Masters(lambda: masters(folder, settings)))


def open_vault(folder: Path, settings: Vault) -> EnvelopeVault:
    """What encrypts with the keys of that folder."""
    return EnvelopeVault(keyring(folder, settings), time.monotonic)
