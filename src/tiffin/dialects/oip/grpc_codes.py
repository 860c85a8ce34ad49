"""What gRPC says of an error: one of its numbers, by the slug of the one tree."""

from functools import cache
from typing import Final

from tiffin.errors import Code, TiffinError, every_error

NUMBER: Final[dict[Code, int]] = {
    Code.INVALID_ARGUMENT: 3,
    Code.DEADLINE_EXCEEDED: 4,
    Code.NOT_FOUND: 5,
    Code.ALREADY_EXISTS: 6,
    Code.PERMISSION_DENIED: 7,
    Code.RESOURCE_EXHAUSTED: 8,
    Code.FAILED_PRECONDITION: 9,
    Code.UNIMPLEMENTED: 12,
    Code.INTERNAL: 13,
    Code.UNAVAILABLE: 14,
    Code.UNAUTHENTICATED: 16,
}
"""The numbers of https://grpc.io/docs/guides/status-codes."""

# Where gRPC has a status of its own for what the tree calls a wrong request.
OTHERWISE: Final = {
    "payload_too_large": Code.RESOURCE_EXHAUSTED,
    "request_timeout": Code.DEADLINE_EXCEEDED,
}


def number_of(slug: str) -> int:
    """The status of the error with this slug; of one that isn't known, `INTERNAL`."""
    return _numbers().get(slug, NUMBER[TiffinError.code])


@cache
def _numbers() -> dict[str, int]:
    return {
        error.slug: NUMBER[OTHERWISE.get(error.slug, error.code)]
        for error in every_error()
        if "slug" in vars(error)
    }
