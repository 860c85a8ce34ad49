"""What OpenAI's endpoints share as dialects of the walk: how errors are told."""

from collections.abc import Callable

from tiffin.dialects.dialect import Asked
from tiffin.dialects.openai.errors import error_response, stream_error_event
from tiffin.errors import TiffinError
from tiffin.ports.exchange import Exchange, Headers

Read = Callable[[Exchange, bytes], Asked]


class OpenAIDialect:
    """An endpoint with OpenAI's errors: `read` makes its requests, or raises `InvalidRequest`."""

    def __init__(self, read: Read) -> None:
        self.read = read

    def error(self, error: TiffinError) -> tuple[int, Headers, bytes]:
        """OpenAI's error object."""
        return error_response(error)

    def stream_error(self, error: TiffinError) -> bytes:
        """The event that ends a broken stream."""
        return stream_error_event(error)
