"""What the walk asks of a dialect, so that every protocol takes the same path.

A dialect is pure: bytes in, typed values out, no I/O. One value a request carries everything that
depends on the protocol (`Asked`), and one value an attempt reads the reply on its way (`Reading`).
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from tiffin.errors import TiffinError
from tiffin.ports.exchange import Exchange, Headers
from tiffin.ports.guard import Piece as Piece
from tiffin.types.snapshot import Plan, Target
from tiffin.types.usage import Usage

JSON_CONTENT = b"content-type: application/json\r\n"


class Forward(NamedTuple):
    """What a target is sent: its path, the header lines that say what the body is, the body."""

    path: bytes
    headers: bytes
    body: bytes


class Extent(NamedTuple):
    """How much a request is, as far as it says so itself.

    `text` is whether it is read as tokens. Its answer has at most `answer_tokens` in all, None
    where it doesn't say. `rows` and `images` are in it; `pages` are at least. `size` is its bytes
    with what it continues, 0 where it stands alone.
    """

    text: bool = False
    answer_tokens: int | None = 0
    rows: int = 0
    images: int = 0
    pages: int = 0
    size: int = 0


class Portion(NamedTuple):
    """How much of something a request asks for: `of` as caps name it, by which `field`."""

    of: str
    field: str
    amount: int


@dataclass(slots=True)
class Told:
    """A whole reply as its head and body came. `usage` is a replica's own word on it, if given."""

    body: bytes
    content_type: bytes
    inference_header: bytes = b""
    usage: Usage | None = None


class Whole(NamedTuple):
    """A whole answer as the client gets it."""

    headers: Headers
    body: bytes
    usage: Usage


class Reading(Protocol):
    """Reads a stream of events on its way to the client.

    `content` becomes true with the first content that a client would see, `done` at the true end,
    `error` with an event that is an error or is none of the dialect's. `priced` tells what a use
    costs, for the event that tells the use; None where nothing has a price.
    """

    content: bool
    done: bool
    error: TiffinError | None
    priced: Callable[[Usage], str] | None

    @property
    def usage(self) -> Usage:
        """What the stream reported, or what was counted (then not `measured`)."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Read the next bytes (`b""` at the stream's end) and return those for the client."""
        ...


class Asked(Protocol):
    """One request, decoded. `operation` is what the target must serve: `chat`, `infer` …

    `streaming` is whether the client gets events. `cached_as` is the form of the answer, of those
    that the same canonical request may have; empty: this kind is never cached. `timeout_s` is how
    long the client gives it by a field of the dialect, 0 where it doesn't say. `leaves_prefix` says
    that a replica answers sooner what begins as something that it answered before. `batch` says
    that nobody waits for it: by a field of the dialect. `offers_tools` is whether the model may ask
    for calls of tools, `end_user` whom it is for, as far as the client says that.
    """

    operation: str
    model: str
    streaming: bool
    cached_as: str
    timeout_s: float
    leaves_prefix: bool
    batch: bool
    offers_tools: bool
    end_user: str

    def check(self, plan: Plan) -> None:
        """Everything that single fields don't say; raises `InvalidRequest`."""
        ...

    def pieces(self) -> Iterator[Piece]:
        """Every string of it, for a guard."""
        ...

    def extent(self) -> Extent:
        """How much it is, for limits."""
        ...

    def portions(self) -> Iterator[Portion]:
        """Everything of it that may have a cap, in the client's own words."""
        ...

    def shorten(self, tokens: int) -> None:
        """Have an answer whose length the request leaves open be of no more than so many tokens."""
        ...

    def canonical(self) -> bytes:
        """Equal for requests that mean the same; part of a cache's key."""
        ...

    def forward(self, target: Target) -> Forward:
        """What this target is sent."""
        ...

    def whole(self, told: Told, target: Target) -> Whole:
        """The client's answer from a whole reply; raises `UpstreamFailed` where it is none."""
        ...

    def reading(self, target: Target) -> Reading:
        """A reader of one attempt's stream."""
        ...

    def settle(self) -> Awaitable[None] | None:
        """The answer is whole, and whatever looks at answers let it pass: it goes to the client.

        Only now may any of it be kept; what to await before it goes, where keeping takes anything.
        """
        ...

    def answer_text(self, body: bytes) -> str:
        """Everything that an answer (as the client gets it) says, for a guard of answers."""
        ...


@runtime_checkable
class Recasting(Protocol):
    """A request (`Asked`) that a kept answer of another form can be given to as well."""

    def recast(self, body: bytes, form: str, wanted: str, usage: Usage) -> bytes | None:
        """An answer of one form in another; None where that can't be done for sure."""
        ...


class Question(NamedTuple):
    """What a conversation asks last: its text; `around` is everything else of it, canonical."""

    text: str
    around: bytes


@runtime_checkable
class Conversing(Protocol):
    """A request (`Asked`) that may be a conversation whose last words are a question."""

    def question(self) -> Question | None:
        """That; None where the request ends in anything else, or in more than words."""
        ...


class Inputs(Protocol):
    """The inputs of a request, each of which has an answer of its own."""

    def parts(self) -> list[bytes]:
        """What each input asks alone, canonically, in their order."""
        ...

    def only(self, places: Sequence[int]) -> Asked:
        """A request for the inputs at some places alone, in that order."""
        ...

    def split(self, body: bytes) -> list[bytes]:
        """What an answer says to each input, in their order; empty where that can't be told."""
        ...

    def joined(self, parts: Sequence[bytes], made: bytes) -> bytes:
        """The answer that says this to each input. Those of them that were made now are in the
        answer `made`, empty where there are none; only they used anything."""
        ...


@runtime_checkable
class Parted(Protocol):
    """A request (`Asked`) whose inputs can be answered apart."""

    inputs: Inputs


class Dialect(Protocol):
    """One protocol."""

    def read(self, exchange: Exchange, body: bytes) -> Asked:
        """The request that an exchange carries; raises `InvalidRequest`."""
        ...

    def error(self, error: TiffinError) -> tuple[int, Headers, bytes]:
        """An error as a whole response."""
        ...

    def stream_error(self, error: TiffinError) -> bytes:
        """The last event of a stream that can't be ended well."""
        ...
