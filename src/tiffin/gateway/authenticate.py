"""Who is asking: a bearer key becomes a principal, or the request ends here."""

from hashlib import sha256

from tiffin.errors import PermissionDenied, Unauthenticated
from tiffin.ports.exchange import Exchange
from tiffin.types.snapshot import Principal, Snapshot

MISSING = (
    "no API key was given; send it as the header 'Authorization: Bearer <key>'"
    " (the starter's key is printed when the server starts)"
)
UNKNOWN = "this API key isn't known here; check it, or ask the operator for one"


def authenticate(exchange: Exchange, snapshot: Snapshot) -> Principal:
    """The principal of the request's key, found by the key's hash; raises `Unauthenticated`.

    Looking a digest up takes a time that says nothing about the key, so no comparison leaks it.
    """
    header = exchange.header(b"authorization")
    if header is None:
        raise Unauthenticated(MISSING)
    scheme, _, key = header.partition(b" ")
    if scheme.lower() != b"bearer" or not key.strip():
        raise Unauthenticated(MISSING)
    principal = snapshot.keys.get(sha256(key.strip()).hexdigest())
    if principal is None:
        raise Unauthenticated(UNKNOWN)
    return principal


def require_admin(principal: Principal) -> None:
    """Raise `PermissionDenied` where a key has no admin right."""
    if not principal.admin:
        raise PermissionDenied(
            f"the key '{principal.tenant}/{principal.key}' has no admin right;"
            " use one whose section says 'admin = true'"
        )
