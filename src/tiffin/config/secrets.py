"""Secrets by reference: an environment variable or a file, read when needed and never kept."""

import os
from pathlib import Path

from tiffin.errors import ConfigInvalid


def read_secret(*, env: str = "", file: str = "") -> str:
    """The secret that a reference names, empty where there is no reference.

    Raises `ConfigInvalid` that names the reference (never the value) when it leads nowhere.
    """
    if env:
        value = os.environ.get(env, "").strip()
        if not value:
            raise ConfigInvalid(f"the environment variable {env} isn't set", where="key_env")
        return value
    if file:
        try:
            return Path(file).expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigInvalid(f"can't read {file}: {error}", where="key_file") from error
    return ""
