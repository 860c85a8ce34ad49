"""Every error that Tiffin raises: one tree, one stable slug each, no transport in it.

TiffinError
  InvalidRequest       MalformedBody · SchemaViolation · ContextLengthExceeded
                       UnsupportedParameter · UnknownParameter · UnsupportedOperation
                       PayloadTooLarge · RequestTimeout · MethodNotAllowed · IdempotencyKeyReused
  Unauthenticated      KeyExpired
  PermissionDenied     OutOfScope · ResidencyDenied · TenantSuspended
  Rejected             RateLimited · ConcurrencyExceeded · Overloaded         (retry_after)
  QuotaExceeded        a budget is spent
  Blocked              a policy refused the input or the output
  NotFound             {Model,Endpoint,Response,PreviousResponse}NotFound
  Conflict             IdempotencyKeyInUse · Indeterminate
  Unavailable          NoHealthyReplica · Loading · Draining · JournalUnavailable
                       UpstreamUnavailable · LimitStoreUnavailable               retryable
  DeadlineExceeded
  RunFailed            LoadFailed · ModelTimeout · UpstreamFailed · UpstreamRefused
  ArtifactError        DigestMismatch · ArtifactUnavailable
ConfigInvalid          start-up and apply only: where in the tree, what was found, what was expected

An adapter translates at its border and chains the cause. Constructing an error has no effects.
"""

from enum import Enum
from typing import ClassVar, NamedTuple, TypedDict, Unpack


class Code(Enum):
    """gRPC's canonical codes, the vocabulary that every transport can map from."""

    INVALID_ARGUMENT = "invalid_argument"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    UNAVAILABLE = "unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    INTERNAL = "internal"
    UNIMPLEMENTED = "unimplemented"


class _Told(TypedDict, total=False):
    retry_after: float | None
    param: str | None


class TiffinError(Exception):
    """The root: a message for people, a slug for programs, and whether trying again can help;
    `retry_after` is in seconds, `param` names the request field at fault, by the dialect's path."""

    slug: ClassVar[str] = "internal_error"
    code: ClassVar[Code] = Code.INTERNAL
    retryable: ClassVar[bool] = False
    status = 0  # of the reply that says so, where an adapter has read it

    def __init__(
        self, message: str, *, retry_after: float | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
        self.param = param


class InvalidRequest(TiffinError):
    """The request can't be right for any model; sending it again can't help."""

    slug = "invalid_request"
    code = Code.INVALID_ARGUMENT


class MalformedBody(InvalidRequest):
    """The body is not the format that its endpoint reads (not JSON, not UTF-8, duplicate keys)."""

    slug = "malformed_body"


class SchemaViolation(InvalidRequest):
    """A field has a wrong type or value, or a grammar or schema can't be enforced."""

    slug = "invalid_value"


class ContextLengthExceeded(InvalidRequest):
    """Prompt and answer don't fit the context that one slot of the model has."""

    slug = "context_length_exceeded"


class UnsupportedParameter(InvalidRequest):
    """A known parameter that this model or endpoint can't honour."""

    slug = "unsupported_parameter"


class UnsupportedOperation(InvalidRequest):
    """Something that the named model doesn't do at all."""

    slug = "unsupported_operation"


class UnknownParameter(InvalidRequest):
    """A field that the endpoint doesn't have."""

    slug = "unknown_parameter"


class PayloadTooLarge(InvalidRequest):
    """The body, or the head, is larger than the server's limit."""

    slug = "payload_too_large"


class RequestTimeout(InvalidRequest):
    """The client took too long to send its head or body."""

    slug = "request_timeout"


class MethodNotAllowed(InvalidRequest):
    """The endpoint exists, but not with this method; `allowed` lists those that it has."""

    slug = "method_not_allowed"

    def __init__(self, message: str, *, allowed: str = "", **more: Unpack[_Told]) -> None:
        super().__init__(message, **more)
        self.allowed = allowed


class IdempotencyKeyReused(InvalidRequest):
    """The idempotency key was used for another request."""

    slug = "idempotency_key_reused"


class Unauthenticated(TiffinError):
    """No key, or a key that nobody has."""

    slug = "invalid_api_key"
    code = Code.UNAUTHENTICATED


class KeyExpired(Unauthenticated):
    """The key was one of ours, and its time is over."""

    slug = "key_expired"


class PermissionDenied(TiffinError):
    """The key is known and may not do this."""

    slug = "permission_denied"
    code = Code.PERMISSION_DENIED


class OutOfScope(PermissionDenied):
    """The key isn't for this endpoint, or not for requests with tools."""

    slug = "out_of_scope"


class ResidencyDenied(PermissionDenied):
    """The key's data may not go to where the model runs: its region, or its class of data."""

    slug = "residency_denied"


class TenantSuspended(PermissionDenied):
    """An operator suspended the key's tenant."""

    slug = "tenant_suspended"


class Rejected(TiffinError):
    """Refused for now by a limit; the same request may pass after `retry_after` seconds."""

    slug = "rejected"
    code = Code.RESOURCE_EXHAUSTED
    retryable = True


class Pace(NamedTuple):
    """How a limit of `requests` or `tokens` stands: its size, what is left, in how many ms all."""

    of: str
    limit: int
    left: int
    resets_ms: int


class RateLimited(Rejected):
    """Too much in the period; `pace` is how the limit stands, where that is known."""

    slug = "rate_limit_exceeded"
    pace: Pace | None = None


class ConcurrencyExceeded(Rejected):
    """Too many requests at once for this key or tenant."""

    slug = "concurrency_limit_exceeded"


class QuotaExceeded(TiffinError):
    """A budget is spent; waiting a little doesn't help."""

    slug = "insufficient_quota"
    code = Code.RESOURCE_EXHAUSTED


class Overloaded(Rejected):
    """The server or the model's queue is full; for `full_s` seconds, like requests of the same
    tenant would be refused too."""

    slug = "overloaded"
    code = Code.UNAVAILABLE

    def __init__(self, message: str, *, full_s: float = 0.0, **more: Unpack[_Told]) -> None:
        super().__init__(message, **more)
        self.full_s = full_s


class Blocked(TiffinError):
    """A guard refused the input or the output."""

    slug = "content_blocked"
    code = Code.FAILED_PRECONDITION


class NotFound(TiffinError):
    """There is no such thing, or not for this tenant."""

    slug = "not_found"
    code = Code.NOT_FOUND


class ModelNotFound(NotFound):
    """No model or route has this name, or this key may not see it."""

    slug = "model_not_found"


class EndpointNotFound(NotFound):
    """No endpoint has this path."""

    slug = "endpoint_not_found"


class ResponseNotFound(NotFound):
    """No response of this id is kept for this tenant."""

    slug = "response_not_found"


class PreviousResponseNotFound(ResponseNotFound):
    """The response that a request wants to continue isn't kept for this tenant."""

    slug = "previous_response_not_found"


class Conflict(TiffinError):
    """The state of the thing forbids this now."""

    slug = "conflict"
    code = Code.ALREADY_EXISTS


class IdempotencyKeyInUse(Conflict):
    """The request with this idempotency key is still running."""

    slug = "idempotency_key_in_use"
    retryable = True


class Indeterminate(Conflict):
    """The request with this idempotency key may have been charged, and its answer isn't here."""

    slug = "indeterminate"


class Unavailable(TiffinError):
    """Nothing can serve this now; another try later may succeed."""

    slug = "unavailable"
    code = Code.UNAVAILABLE
    retryable = True


class NoHealthyReplica(Unavailable):
    """No replica of the model is ready."""

    slug = "no_healthy_replica"


class Loading(Unavailable):
    """The model is being fetched, loaded or warmed up."""

    slug = "model_loading"


class Draining(Unavailable):
    """The server is stopping and takes no new work."""

    slug = "draining"


class JournalUnavailable(Unavailable):
    """The account journal can't be written, so paid work is refused."""

    slug = "journal_unavailable"


class LimitStoreUnavailable(Unavailable):
    """The store in which gateways count limits doesn't answer, and one that holds needs it."""

    slug = "limit_store_unavailable"


class UpstreamUnavailable(Unavailable):
    """A replica or upstream couldn't be reached, or broke before it answered."""

    slug = "upstream_unavailable"
    stale = False  # whether what had been kept, a connection or a token, was found to be over


class DeadlineExceeded(TiffinError):
    """The request's deadline passed."""

    slug = "deadline_exceeded"
    code = Code.DEADLINE_EXCEEDED


class RunFailed(TiffinError):
    """The model failed while it ran."""

    slug = "run_failed"


class LoadFailed(RunFailed):
    """A model couldn't be loaded or failed its warm-up."""

    slug = "load_failed"


class ModelTimeout(RunFailed):
    """The model took longer for a token than its settings allow, within the request's deadline."""

    slug = "model_timeout"
    code = Code.DEADLINE_EXCEEDED
    retryable = True


class UpstreamFailed(RunFailed):
    """An upstream answered with an error or with nonsense."""

    slug = "upstream_failed"
    retryable = True


class UpstreamRefused(RunFailed):
    """An upstream refused the request in a way that trying again can't change."""

    slug = "upstream_refused"


class ArtifactError(TiffinError):
    """A model's file can't be had or can't be trusted."""

    slug = "artifact_error"
    code = Code.FAILED_PRECONDITION


class DigestMismatch(ArtifactError):
    """The bytes are not the bytes that were declared."""

    slug = "digest_mismatch"


class ArtifactUnavailable(ArtifactError):
    """None of the declared sources gave the file."""

    slug = "artifact_unavailable"


class ConfigInvalid(TiffinError):
    """The configuration can't be used: `where` is the path in it, the message says the mend."""

    slug = "config_invalid"
    code = Code.INVALID_ARGUMENT

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message, param=where or None)
        self.where = where


def every_error(root: type[TiffinError] = TiffinError) -> list[type[TiffinError]]:
    """All error classes from one on, itself first, in the order of the tree above."""
    return [root, *(error for child in root.__subclasses__() for error in every_error(child))]
