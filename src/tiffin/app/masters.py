"""The master keys of a data folder, found where the settings say, or made."""

from pathlib import Path

from tiffin.adapters.vaults.masters import Master, master, own_master
from tiffin.config.secrets import read_secret
from tiffin.config.vault import MasterKey, Vault
from tiffin.errors import ConfigInvalid

OWN = "master"
WHERE = "server.vault"


def masters(folder: Path, settings: Vault) -> list[Master]:
    """The master key, then those before it that are still there; raises `ConfigInvalid`."""
    own = folder / OWN
    found = [_referred(settings, WHERE)] if settings.given else [own_master(own)]
    if settings.previous.given:
        found.append(_referred(settings.previous, f"{WHERE}.previous"))
    if settings.given and own.exists():  # until everything is wrapped anew
        found.append(own_master(own))
    return found


def _referred(key: MasterKey, where: str) -> Master:
    try:
        text = read_secret(env=key.key_env, file=key.key_file, command=key.key_command)
    except ConfigInvalid as cause:
        raise ConfigInvalid(cause.message, where=where) from cause
    return master(text, where)
