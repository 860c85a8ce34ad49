"""What the public port shows its clients and asks of them, by reference."""

from typing import Literal

import msgspec


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.tls]`: without `certificate` the public port speaks plain HTTP.

    `certificate` is a PEM file: the server's own, then those between it and its authority. Its key
    is at exactly one of `key_file`, `key_env`, `key_command`, as PEM. `client` says whether clients
    must show one (`required`), may (`optional`: one that is shown must be right) or aren't asked
    (`none`); `client_ca` is a PEM file of the authorities that it must be from.
    """

    certificate: str = ""
    key_file: str = ""
    key_env: str = ""
    key_command: list[str] = []
    client_ca: str = ""
    client: Literal["none", "optional", "required"] = "none"

    @property
    def on(self) -> bool:
        """Whether the public port speaks TLS."""
        return bool(self.certificate)

    @property
    def scheme(self) -> str:
        """How its addresses begin."""
        return "https" if self.on else "http"
