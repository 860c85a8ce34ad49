"""`POST /v1/messages/count_tokens`: how many tokens a request has, as its model counts them."""

from collections.abc import Iterator

import msgspec

from tiffin.dialects.anthropic.dialect import content_of, is_native
from tiffin.dialects.anthropic.portions import portions
from tiffin.dialects.anthropic.replies import encode
from tiffin.dialects.anthropic.requests import COUNTS, as_named, chat_of
from tiffin.dialects.dialect import Extent, Forward, Portion, Reading, Told, Whole
from tiffin.dialects.openai.requests import encode as encode_text
from tiffin.dialects.openai.text import JSON_HEADERS, TextAsked, TextEndpoint, strings
from tiffin.errors import TiffinError, UpstreamFailed
from tiffin.ports.exchange import Exchange
from tiffin.ports.guard import Piece
from tiffin.types.messages import CountRequest, MessagesRequest
from tiffin.types.snapshot import Plan, Target
from tiffin.types.text import TokenizeRequest
from tiffin.types.usage import Usage

PATH = b"/v1/messages/count_tokens"
UPSTREAM_PATH = b"/messages/count_tokens"
TOKENIZE = TextEndpoint("tokenize", b"/tokenize")


class _Counted(msgspec.Struct):
    count: int | None = None
    input_tokens: int | None = None


_COUNTED = msgspec.json.Decoder(_Counted)


def read_count(exchange: Exchange, body: bytes) -> "CountAsked":
    """The request that a body spells."""
    return CountAsked(*COUNTS.read(body), content_of(exchange))


class CountAsked:
    """One request to count; satisfies `dialects.dialect.Asked`."""

    operation = "count_tokens"
    streaming = False
    timeout_s = 0.0
    batch = False
    leaves_prefix = False
    cached_as = ""
    end_user = ""

    def __init__(self, request: CountRequest, canonical: bytes, content: bytes) -> None:
        self._canonical = canonical
        self._content = content
        self._tokenize: TextAsked | None = None
        self.request = request
        self.model = request.model
        self.offers_tools = bool(request.tools or request.mcp_servers)

    def check(self, plan: Plan) -> None:
        """What a message is checked for, where Anthropic doesn't do that itself."""
        others = [target for target in plan.targets if not is_native(target)]
        if not others:
            return
        asked = {name: getattr(self.request, name) for name in self.request.__struct_fields__}
        chat, places = chat_of(MessagesRequest(max_tokens=1, **asked))
        request = TokenizeRequest(model=self.model, messages=chat.messages, tools=chat.tools)
        self._tokenize = TextAsked(TOKENIZE, request, encode_text(request, model=self.model))
        try:
            self._tokenize.check(msgspec.structs.replace(plan, targets=tuple(others)))
        except TiffinError as error:
            raise as_named(error, places) from None

    def pieces(self) -> Iterator[Piece]:
        """Every string."""
        return strings("", msgspec.to_builtins(self.request))

    def extent(self) -> Extent:
        """A prompt, and no answer."""
        return Extent(True)

    def portions(self) -> Iterator[Portion]:
        """What its fields ask for."""
        return portions(self.request)

    def shorten(self, tokens: int) -> None:
        """Nothing: there is no answer."""

    def canonical(self) -> bytes:
        """The canonical spelling."""
        return self._canonical

    def forward(self, target: Target) -> Forward:
        """The question in the target's words."""
        if is_native(target) or self._tokenize is None:
            name = target.upstream_model or target.model
            named = msgspec.structs.replace(self.request, model=name)
            return Forward(UPSTREAM_PATH, self._content, encode(named))
        return self._tokenize.forward(target)

    def whole(self, told: Told, target: Target) -> Whole:
        """The count, which costs no tokens."""
        try:
            counted = _COUNTED.decode(told.body)
        except msgspec.DecodeError as error:
            raise UpstreamFailed("the answer is no count") from error
        tokens = counted.input_tokens if is_native(target) else counted.count
        if tokens is None:
            raise UpstreamFailed("the answer has no count")
        body = encode({"input_tokens": tokens})
        return Whole(JSON_HEADERS, body, told.usage or Usage(measured=False))

    def reading(self, target: Target) -> Reading:
        """Nothing: counts aren't streamed."""
        raise TypeError("counts aren't streamed")

    def settle(self) -> None:
        """Nothing is kept of it."""

    def answer_text(self, body: bytes) -> str:
        """Nothing: a count says no words."""
        return ""
