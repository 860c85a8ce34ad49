"""`[server.limit_store]`: where several gateways count together."""

import msgspec

from tiffin.config.fields import Seconds, Text


class StoreAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.limit_store]`: the Valkey or Redis in which several gateways count their limits.

    `url` is `valkey://HOST:PORT`, `redis://`, with TLS `valkeys://` or `rediss://`, or
    `unix:///PATH`; a number at the end, as in `valkey://HOST/2`, is the database. The password is
    at one of `key_env`, `key_file` and `key_command`, or there is none; `ca` is a file of
    authorities that its certificate may be from. A request waits for it no longer than `timeout_s`.
    All its keys begin with `prefix`.
    """

    url: str = ""
    user: str = ""
    key_env: str = ""
    key_file: str = ""
    key_command: list[str] = []
    ca: str = ""
    timeout_s: Seconds = 0.1
    prefix: Text = "tiffin"
