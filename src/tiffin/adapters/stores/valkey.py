"""How a Valkey or Redis is reached: its address, its password, TLS, its database."""

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from tiffin.adapters.stores.resp import Connection, Refused
from tiffin.adapters.stores.shared_limits import Dial
from tiffin.config.limit_store import SECURE
from tiffin.config.secrets import read_secret
from tiffin.config.store_address import StoreAddress
from tiffin.errors import ConfigInvalid, LimitStoreUnavailable

PORT = 6379


def dialer(store: StoreAddress) -> Dial:
    """Connects to what `[server.limit_store]` names; the password is read each time."""

    async def dial(lost: Callable[[str], None]) -> Connection:
        try:
            async with asyncio.timeout(store.timeout_s):
                connection = await _connected(store, lost)
            await _introduce(connection, store)
        except (OSError, ConfigInvalid, Refused, ssl.SSLError) as cause:
            raise LimitStoreUnavailable(
                f"the store of limits can't be reached: {cause or type(cause).__name__}"
            ) from cause
        return connection

    return dial


async def _connected(store: StoreAddress, lost: Callable[[str], None]) -> Connection:
    loop, parts = asyncio.get_running_loop(), urlsplit(store.url)

    def made() -> Connection:
        return Connection(store.timeout_s, lost)

    if parts.scheme == "unix":
        _, connection = await loop.create_unix_connection(made, parts.path)
        return connection
    context = None
    if parts.scheme in SECURE:
        context = await asyncio.to_thread(ssl.create_default_context, cafile=store.ca or None)
    port = parts.port or PORT
    _, connection = await loop.create_connection(made, parts.hostname or "", port, ssl=context)
    return connection


async def _introduce(connection: Connection, store: StoreAddress) -> None:
    """Say who we are and which database is meant."""
    try:
        secret = await asyncio.to_thread(
            read_secret, env=store.key_env, file=store.key_file, command=store.key_command
        )
        if secret:
            user = (store.user.encode(),) if store.user else ()
            await connection.call(b"AUTH", *user, secret.encode())
        parts = urlsplit(store.url)
        database = parts.path.strip("/") if parts.scheme != "unix" else ""
        if database:
            await connection.call(b"SELECT", database.encode())
    except BaseException:
        connection.close()
        raise
