"""For whom a request is, and what of it holds in a replica."""

import math
from dataclasses import dataclass

from tiffin.errors import SchemaViolation
from tiffin.serving.lanes.claim import Claim


@dataclass(frozen=True, slots=True)
class Context:
    """For whom (an empty tenant shares with nobody), until when (monotonic seconds), how urgent.

    By `aim` it should be answered, by `first` the answer should begin: what can't be is refused.
    `weight` is the tenant's part of what is shared. It was `opened` then (0: when it is asked).
    Its prompts may have `most_tokens` in all (0: whatever the model takes).
    """

    tenant: str = ""
    deadline: float = math.inf
    batch: bool = False
    aim: float = math.inf
    first: float = math.inf
    weight: float = 1.0
    opened: float = 0.0
    most_tokens: int = 0

    def check_length(self, tokens: int, param: str) -> None:
        """Raise `SchemaViolation` where that many tokens are over what this request may have."""
        if 0 < self.most_tokens < tokens:
            raise SchemaViolation(
                f"'{param}' has {tokens} tokens; with this key a request may have at most"
                f" {self.most_tokens} (input_tokens)",
                param=param,
            )

    def claim(self) -> Claim:
        """Its claim on a slot."""
        return Claim(
            self.tenant,
            self.deadline,
            self.batch,
            self.aim,
            self.first,
            weight=self.weight,
            opened=self.opened,
        )
