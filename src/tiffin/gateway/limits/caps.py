"""Caps: what a single request may ask for, by its key, its project and its tenant together."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tiffin.dialects.dialect import Asked, Portion
from tiffin.errors import SchemaViolation
from tiffin.types.caps import said
from tiffin.types.limits import Limits
from tiffin.types.snapshot import Plan

CHARACTERS_A_TOKEN = 4
"""Of text that an upstream will count; about what tokenizers make of English."""

# Where attachments hold their content, which isn't text.
_CONTENTS = (".url", ".data", ".file_data")


class Cap(NamedTuple):
    """The most of something, and whose that is."""

    most: int
    whose: str


class HeldCaps:
    """The least of each cap that a key comes under."""

    __slots__ = ("_caps", "input_tokens")

    def __init__(self, caps: Mapping[str, Cap]) -> None:
        self._caps = caps
        self.input_tokens = caps["input_tokens"].most if "input_tokens" in caps else 0

    def body_bytes(self, most: int) -> int:
        """How large a body may be where the server takes that much."""
        cap = self._caps.get("body_bytes")
        return most if cap is None else min(most, cap.most)

    def hold(self, asked: Asked, plan: Plan) -> None:
        """Raise `SchemaViolation` for what is over one; an answer of open length is shortened."""
        if not self._caps:
            return
        for portion in asked.portions():
            self._check(portion)
        if (answer := self._caps.get("output_tokens")) is not None:
            asked.shorten(answer.most)
        if self.input_tokens and any(one.kind == "remote" for one in plan.targets):
            self._check(_estimated(asked))

    def _check(self, portion: Portion) -> None:
        of, field, amount = portion
        cap = self._caps.get(of)
        if cap is not None and amount > cap.most:
            raise SchemaViolation(
                f"'{field}' comes to {amount} {of.replace('_', ' ')}; a request of the"
                f" {cap.whose} may have at most {cap.most} (limits.per_request.{of})",
                param=field,
            )


NO_CAPS = HeldCaps({})


def held(sources: Iterable[tuple[str, Limits]]) -> HeldCaps:
    """The caps of some holders together."""
    least: dict[str, Cap] = {}
    for whose, limits in sources:
        for of, most in said(limits.per_request).items():
            if of not in least or most < least[of].most:
                least[of] = Cap(most, whose)
    return HeldCaps(least) if least else NO_CAPS


def _estimated(asked: Asked) -> Portion:
    """How long its text is, in tokens, and the field that has the longest."""
    texts = [
        (len(piece.text), piece.param)
        for piece in asked.pieces()
        if piece.text and not piece.param.endswith(_CONTENTS)
    ]
    _, longest = max(texts, default=(0, ""))
    characters = sum(length for length, _ in texts)
    field = longest.partition("[")[0].partition(".")[0]
    return Portion("input_tokens", field, -(-characters // CHARACTERS_A_TOKEN))
