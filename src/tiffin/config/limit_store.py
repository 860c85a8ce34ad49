"""What the address of the store of limits must be, and who needs one."""

from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from tiffin.config.hosts import has_host
from tiffin.config.references import broken_path, broken_reference
from tiffin.config.shape import Problem
from tiffin.config.store_address import StoreAddress

SCHEMES = ("valkey", "redis", "valkeys", "rediss", "unix")
SECURE = ("valkeys", "rediss")


def broken_limit_store(
    store: StoreAddress, gateways: int, where: str = "server.limit_store"
) -> Iterator[Problem]:
    """Every rule that `[server.limit_store]` breaks."""
    if not store.url:
        if gateways > 1:
            message = (
                f"missing, and server.gateways is {gateways}: each would admit all of every limit."
                ' Give the address of a Valkey or Redis, such as "valkey://127.0.0.1:6379", or have'
                " one gateway"
            )
            yield Problem(f"{where}.url", message)
        elif store != StoreAddress():
            yield Problem(f"{where}.url", "missing: without it the rest has no meaning")
        return
    yield from broken_reference(store, where, needed=False)
    yield from broken_path(store.ca, f"{where}.ca")
    try:
        parts = urlsplit(store.url)
        usable = _usable(parts)
    except ValueError:
        usable = False
    if not usable:
        yield Problem(
            f"{where}.url",
            "expected an address such as valkey://127.0.0.1:6379, valkeys://HOST:PORT/DATABASE or"
            " unix:///PATH",
        )
    elif parts.username or parts.password:
        yield Problem(f"{where}.url", "no user or password here; they go to user and key_env")


def _usable(parts: SplitResult) -> bool:
    if parts.query or parts.fragment:
        return False
    if parts.scheme == "unix":
        return not parts.netloc and len(parts.path) > 1
    database = parts.path.strip("/")
    return parts.scheme in SCHEMES and has_host(parts) and (not database or database.isdecimal())
