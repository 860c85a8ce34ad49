"""The vault of a data folder, put together from its settings."""

import time
from pathlib import Path

from tiffin.adapters.vaults.envelope import EnvelopeVault
from tiffin.adapters.vaults.keyring import Keyring
from tiffin.adapters.vaults.masters import Master, Masters, master, own_master
from tiffin.config.secrets import read_secret
from tiffin.config.vault import MasterKey, Vault
from tiffin.errors import ConfigInvalid

OWN = "master"
BEFORE = "master.previous"


def keyring(folder: Path, settings: Vault) -> Keyring:
    """The tenants' keys in a folder; what `settings` refer to is read when it is first needed."""
    return Keyring(folder, Masters(lambda: masters(folder, settings)))


def open_vault(folder: Path, settings: Vault) -> EnvelopeVault:
    """What encrypts with the keys of that folder."""
    return EnvelopeVault(keyring(folder, settings), time.monotonic)


def masters(folder: Path, settings: Vault) -> list[Master]:
    """The master key, then those before it that are still there; raises `ConfigInvalid`."""
    where = "server.vault"
    found = [_referred(settings, where)] if settings.given else [own_master(folder / OWN)]
    if settings.previous.given:
        found.append(_referred(settings.previous, f"{where}.previous"))
    # One of our own stays readable when another is configured, until everything is wrapped anew.
    found += [own_master(path) for path in (folder / OWN, folder / BEFORE) if path.exists()]
    return found


def _referred(key: MasterKey, where: str) -> Master:
    try:
        text = read_secret(env=key.key_env, file=key.key_file, command=key.key_command)
    except ConfigInvalid as cause:
        raise ConfigInvalid(cause.message, where=where) from cause
    return master(text, where)
