"""What is served where nobody configured anything: two models, and one tenant with a key."""

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tiffin.config.environ import environment
from tiffin.config.load import Loaded, load, load_tree
from tiffin.config.schema import Config, Key, Tenant
from tiffin.control.catalogue.starter import STARTER_MODELS
from tiffin.errors import ConfigInvalid
from tiffin.types.paths import DataFolder
from tiffin.types.whole_file import replace_file

TENANT = "starter"
KEY_VARIABLE = "TIFFIN_API_KEY"

_USABLE = re.compile(r"[!-~]{8,512}")


def configuration(
    path: Path | None, folder: DataFolder | None = None, environ: Mapping[str, str] | None = None
) -> Loaded:
    """The configuration that a server would be started with; raises `ConfigInvalid`.

    That is the file's; without a file what was applied last in the data folder, else the starter's.
    `folder` is the data folder where it isn't the configured one.
    """
    if path is not None:
        return load(path, environ)
    if folder is None:
        folder = folder_of(starter_config(DataFolder(Path.cwd()), environ).config)
    if folder.applied.exists():
        return load(folder.applied, environ)
    return starter_config(folder, environ)


def folder_of(config: Config) -> DataFolder:
    """The configured data folder, absolute; raises `ConfigInvalid` for an unknown `~`."""
    try:
        return DataFolder(Path(config.server.data).expanduser().absolute())
    except RuntimeError as cause:
        raise ConfigInvalid(str(cause), where="server.data") from cause


def starter_config(folder: DataFolder, environ: Mapping[str, str] | None = None) -> Loaded:
    """The starter models and a tenant whose one key lies in the folder and opens everything."""
    key = Key(key_file=str(folder.key), admin=True)
    config = Config(
        tenants={TENANT: Tenant(keys={"main": key})},
        models=dict(STARTER_MODELS),
    )
    return load_tree(_as_in_a_file(msgspec.to_builtins(config)), environ, source="starter")


def _as_in_a_file(value: Any) -> Any:
    """A tree with lists alone, and without settings that have no value: TOML has neither."""
    if isinstance(value, dict):
        return {name: _as_in_a_file(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_as_in_a_file(one) for one in value]
    return value


def ensure_key(folder: DataFolder, environ: Mapping[str, str] | None = None) -> str:
    """The starter's key: the environment's if it gives one, else the folder's, else a new one.

    It ends up in the folder's key file, mode 0600. Raises `ConfigInvalid`.
    """
    given = (environment() if environ is None else environ).get(KEY_VARIABLE, "").strip()
    if given and not _USABLE.fullmatch(given):
        raise ConfigInvalid(
            "expected 8 to 512 printable ASCII characters without spaces", where=KEY_VARIABLE
        )
    try:
        kept = folder.key.read_text(encoding="ascii").strip() if folder.key.exists() else ""
        key = given or kept or f"sk-tiffin-{secrets.token_urlsafe(24)}"
        if key != kept:
            folder.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(folder.key, f"{key}\n".encode("ascii"))
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigInvalid(
            f"the key file can't be used: {cause}", where=str(folder.key)
        ) from cause
    return key
