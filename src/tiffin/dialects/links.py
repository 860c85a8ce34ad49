"""Addresses inside requests, which whoever answers would fetch: which of them may be passed on.

Nothing here resolves a name: what it leads to is for the network that fetches it to say.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import inet_aton
from typing import Final
from urllib.parse import urlsplit

from tiffin.dialects.faults import shown
from tiffin.errors import InvalidRequest, SchemaViolation, UnsupportedParameter
from tiffin.types.snapshot import Target

INLINE: Final = "data:"
_PRIVATE_NAMES: Final = (
    *("localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp"),
    *("private", "test", "invalid", "onion", "arpa"),
)
# Prefixes of IPv6 that carry an address of IPv4 in their last 32 bits.
_CARRYING: Final = (ip_network("64:ff9b::/96"), ip_network("::/96"), ip_network("::ffff:0:0/96"))
_MAX_LINK: Final = 8192


def check_link(url: str, param: str, targets: Iterable[Target]) -> None:
    """Raise where a target may not be sent an address, or nobody may be sent this one."""
    if url.startswith(INLINE):
        return
    for target in targets:
        if not target.links:
            raise UnsupportedParameter(
                f"'{param}' is a link, and links aren't passed on to '{target.model}';"
                " send the content itself, as a data: URL",
                param=param,
            )
    reason = refusal(url)
    if reason:
        raise _wrong(url, param, reason)


def _wrong(url: str, param: str, reason: str) -> InvalidRequest:
    return SchemaViolation(f"'{param}' is '{shown(url)}': {reason}", param=param)


def refusal(url: str) -> str:
    """Why an address isn't one on the public internet, as far as it says so itself; or empty."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "it is no address"
    if len(url) > _MAX_LINK or any(not "!" <= letter <= "~" for letter in url):
        return "it is no address"
    if parts.scheme not in ("http", "https"):
        return "a link must begin with https:// or http://"
    if parts.username is not None or parts.password is not None:
        return "a link must not have a user or a password"
    if not host or port == 0 or "\\" in url:
        return "it has no host"
    return _of_host(host)


def _of_host(host: str) -> str:
    address = _address(host)
    if address is not None:
        return "" if _is_public(address) else "that address isn't on the public internet"
    if "." not in host or host.rpartition(".")[2] in _PRIVATE_NAMES:
        return "that host isn't on the public internet"
    return ""


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is, in whatever way the system's resolver would read it."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(inet_aton(host))  # 127.1, 0x7f000001, 2130706433
    except (OSError, UnicodeError):
        return None


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        if any(address in network for network in _CARRYING):
            return _is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour is not None:
            return _is_public(address.sixtofour)
        if address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast
