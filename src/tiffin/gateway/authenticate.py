"""Who is asking: a bearer key becomes a principal, or the request ends here."""

from hashlib import sha256

import msgspec

from tiffin.errors import (
    KeyExpired,
    OutOfScope,
    PermissionDenied,
    TenantSuspended,
    Unauthenticated,
    Unavailable,
)
from tiffin.gateway.keyring import Keyring
from tiffin.ports.clock import Clock
from tiffin.ports.exchange import Exchange
from tiffin.types import roles
from tiffin.types.residency import highest
from tiffin.types.snapshot import Principal, Snapshot

MISSING = (
    "no API key was given; send it as the header 'Authorization: Bearer <key>' or"
    " 'x-api-key: <key>' (the starter's key is printed when the server starts)"
)
UNKNOWN = "this API key isn't known here; check it, or ask the operator for one"
READING = "the keys are still being read; try again in a moment"


class Authentication:
    """Finds whose a key is: in the snapshot that the request pins, else in the keyring.

    Looking a digest up takes a time that says nothing about the key, so no comparison leaks it.
    """

    __slots__ = ("_clock", "_keyring")

    def __init__(self, clock: Clock, keyring: Keyring) -> None:
        self._clock = clock
        self._keyring = keyring

    def __call__(self, exchange: Exchange, snapshot: Snapshot) -> Principal:
        """The principal of the request's key; raises `Unauthenticated`, or `TenantSuspended`.

        `Unavailable` where the key may be one that wasn't read yet.
        """
        digest = sha256(_key_of(exchange)).hexdigest()
        principal = snapshot.keys.get(digest)
        if principal is None:
            principal = self._in_the_ring(digest, snapshot)
        if principal.expires_ns and principal.expires_ns <= self._clock.now_ns():
            raise KeyExpired(f"the key {named(principal)} has expired; ask for another one")
        return bound(principal, snapshot)

    def _in_the_ring(self, digest: str, snapshot: Snapshot) -> Principal:
        principal = self._keyring.keys.get(digest)
        if principal is None:
            if not self._keyring.whole:
                raise Unavailable(READING, retry_after=1.0)
            raise Unauthenticated(UNKNOWN)
        terms = snapshot.tenants.get(principal.tenant)
        if terms is None:
            raise Unauthenticated(UNKNOWN)
        if terms.suspended:
            raise TenantSuspended(
                f"the tenant '{principal.tenant}' is suspended; ask the operator why"
            )
        return principal


def _key_of(exchange: Exchange) -> bytes:
    """The key as OpenAI's clients send it, or else as Anthropic's do."""
    header = exchange.header(b"authorization")
    if header is None:
        key = (exchange.header(b"x-api-key") or b"").strip()
    elif header[:7].lower() == b"bearer ":
        key = header[7:].strip()
    else:
        key = b""
    if not key:
        raise Unauthenticated(MISSING)
    return key


def bound(principal: Principal, snapshot: Snapshot) -> Principal:
    """The principal with what holds for data of its whole tenant too.

    Where its own region is another than its tenant's, its data are nowhere at home.
    """
    terms = snapshot.tenants.get(principal.tenant)
    if terms is None or not (terms.region or terms.data_class):
        return principal
    regions = {principal.region, terms.region} - {""}
    return msgspec.structs.replace(
        principal,
        region=" and ".join(sorted(regions)),
        data_class=highest(principal.data_class, terms.data_class),
    )


def named(principal: Principal) -> str:
    """A key's name as messages have it."""
    return f"'{principal.tenant}/{principal.key}'"


def check_endpoint(principal: Principal, endpoint: str) -> None:
    """Raise `OutOfScope` where a key isn't for an endpoint."""
    if principal.endpoints and endpoint not in principal.endpoints:
        raise OutOfScope(
            f"the key {named(principal)} isn't for '{endpoint}';"
            f" it is for: {', '.join(principal.endpoints)}"
        )


def check_tools(principal: Principal, *, offered: bool) -> None:
    """Raise `OutOfScope` where a request offers tools and its key mayn't."""
    if offered and not principal.tools:
        raise OutOfScope(
            f"requests with the key {named(principal)} may not offer tools", param="tools"
        )


def require_admin(principal: Principal) -> None:
    """Raise `PermissionDenied` where a key has no admin right."""
    if not principal.admin:
        raise PermissionDenied(
            f"the key {named(principal)} has no admin right;"
            " use one whose section says 'admin = true'"
        )


def require_entrance(principal: Principal) -> None:
    """Raise `PermissionDenied` where a key's role doesn't open the admin side at all."""
    if not (principal.admin or roles.enters(principal.role)):
        require_admin(principal)


def require_sight(principal: Principal) -> None:
    """Raise `PermissionDenied` where a key's role doesn't read what is everybody's."""
    if not (principal.admin or roles.sees_all(principal.role)):
        raise PermissionDenied(
            f"the key {named(principal)} doesn't see all of this server;"
            " use one with the role 'auditor' or 'admin'"
        )


def introduction(principal: Principal) -> bytes:
    """The header lines that tell control who asks."""
    return b"x-tiffin-tenant: %b\r\nx-tiffin-key: %b\r\nx-tiffin-role: %b\r\n" % (
        principal.tenant.encode(),
        principal.key.encode(),
        b"admin" if principal.admin else principal.role.encode(),
    )
