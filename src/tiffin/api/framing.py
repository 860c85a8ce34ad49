"""Heads that two readers could understand differently: nobody behind us gets to see one.

RFC 9112: a request of HTTP/1.1 names its host exactly once (3.2), and what isn't a version of
HTTP/1 isn't answered as one; a transfer coding that we don't know can't be framed (6.1).
"""

from collections.abc import Mapping

VERSIONS = ("1.1", "1.0")
# Headers that mean something here, or to a proxy before us, and so must not come twice.
ONCE = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"inference-header-content-length",
        b"transfer-encoding",
    }
)


def unclear(version: str, headers: Mapping[bytes, bytes], repeated: bytes) -> str:
    """What is wrong with a head, or empty; `repeated` is a header of `ONCE` that came again."""
    if version not in VERSIONS:
        return f"HTTP/{version} isn't spoken here; use HTTP/1.1"
    if repeated:
        return f"the header '{repeated.decode('latin-1')}' is given twice; send it once"
    if b"host" not in headers and version == "1.1":
        return "the header 'Host' is missing; HTTP/1.1 needs it"
    coding = headers.get(b"transfer-encoding")
    if coding is not None and coding.strip().lower() != b"chunked":
        return "'Transfer-Encoding' has a coding other than 'chunked'; send the body without it"
    return ""
