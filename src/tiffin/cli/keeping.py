"""`tiffin vault`: the keys that encrypt what is stored of tenants' content."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tiffin.cli.options import AsJson, ConfigFile, DataFolder

if TYPE_CHECKING:
    from tiffin.adapters.vaults.keyring import Keyring, WrappedKey

vault = typer.Typer(
    no_args_is_help=True, help="Look after the keys that encrypt what is stored of content."
)
Tenant = Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)]


@vault.command("status")
def vault_status(
    config: ConfigFile = None, data: DataFolder = None, as_json: AsJson = False
) -> None:
    """Show which tenants have keys, since when, and by which master key they are wrapped.

    No key is shown. Whether the server runs doesn't matter.

    Examples:

        tiffin vault status
        tiffin vault status --json
    """
    import json

    with _keyring(config, data) as keys:
        master, census = keys.master(), keys.census()
    if as_json:
        told = {tenant: [_told(one) for one in found] for tenant, found in census.items()}
        print(json.dumps({"master": master, "tenants": told}, indent=2))
        return
    print(f"master key       {master}")
    for tenant, found in census.items():
        by = sorted({one.master for one in found})
        behind = "" if by == [master] else f", wrapped by {', '.join(by)}: tiffin vault rewrap"
        print(f"{tenant:<16} {len(found)} keys, the newest of {_made(found[-1])}{behind}")


@vault.command("rotate")
def vault_rotate(tenant: Tenant, config: ConfigFile = None, data: DataFolder = None) -> None:
    """Give a tenant a new key for what is stored from now on; the old ones open what is older.

    A running server uses it within a second.

    Example:

        tiffin vault rotate acme
    """
    with _keyring(config, data) as keys:
        keys.rotate(tenant)
    print(f"{tenant} has a new key; what was stored before is read with the old one")


@vault.command("rewrap")
def vault_rewrap(config: ConfigFile = None, data: DataFolder = None) -> None:
    """Wrap all tenants' keys by the master key that is configured now.

    The one before must still be there, as `[server.vault.previous]` or as the file of the data
    folder. Nothing becomes unreadable meanwhile, and no content is written anew.

    Example:

        tiffin vault rewrap
    """
    with _keyring(config, data) as keys:
        count, master = keys.rewrap(), keys.master()
    print(f"{count} keys were wrapped anew; all are wrapped by the master key {master} now")


@vault.command("erase")
def vault_erase(
    tenant: Tenant,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    config: ConfigFile = None,
    data: DataFolder = None,
) -> None:
    """Destroy a tenant's keys: nothing that was stored of its content can be read ever again.

    Example:

        tiffin vault erase acme
    """
    if not yes:
        typer.confirm(f"Make all stored content of '{tenant}' unreadable for ever?", abort=True)
    with _keyring(config, data) as keys:
        count = keys.erase(tenant)
    print(f"{count} keys of {tenant} were destroyed" if count else f"{tenant} had no keys")


@contextmanager
def _keyring(config: ConfigFile, data: DataFolder) -> "Iterator[Keyring]":
    import msgspec

    from tiffin.app.vault import keyring
    from tiffin.cli.locate import configured, folder
    from tiffin.errors import Conflict
    from tiffin.types import paths

    settings = configured(config, data).config
    here = paths.vault(folder(settings, data))
    try:
        yield keyring(here, settings.server.vault)
    except (OSError, msgspec.MsgspecError) as cause:
        raise Conflict(f"the keys in {here} can't be had: {cause}") from cause


def _made(key: "WrappedKey") -> str:
    return datetime.fromtimestamp(key.made_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _told(key: "WrappedKey") -> dict[str, str]:
    return {"id": key.id, "master": key.master, "made": _made(key)}
