"""The guard that keeps personal data out of models: it finds what redaction would replace."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tiffin.ports.guard import Finding
from tiffin.telemetry.redact import find
from tiffin.types.text import CompletionRequest, DetokenizeRequest, TextRequest

# More than most contexts hold; the event loop waits for the check, so it stays bounded.
MAX_CHARACTERS = 200_000

_NAMES = {
    "email": "an e-mail address",
    "phone": "a phone number",
    "card": "a card number",
    "aadhaar": "an Aadhaar number",
    "pan": "a PAN",
    "upi": "a UPI address",
}


class PersonalData:
    """Finds e-mail and UPI addresses, phone, card and Aadhaar numbers, and PANs in any string.

    Token ids can't be looked into, so they are a finding too.
    """

    checks_output = False

    def check_input(self, request: TextRequest) -> Finding | None:
        """The first piece of personal data by kind and place."""
        if isinstance(request, DetokenizeRequest):
            return _token_ids("tokens")
        if isinstance(request, CompletionRequest) and not _is_text(request.prompt):
            return _token_ids("prompt")
        left = MAX_CHARACTERS
        for param, text in _strings("", msgspec.to_builtins(request)):
            left -= len(text)
            if left < 0:
                return Finding(what=f"over {MAX_CHARACTERS} characters to check", param=param)
            for found in find(text):
                return Finding(what=_NAMES[found.kind], param=param)
        return None

    def check_output(self, text: str) -> Finding | None:
        """Nothing: only input is looked at."""
        return None


def _is_text(prompt: str | list[Any]) -> bool:
    return isinstance(prompt, str) or all(isinstance(item, str) for item in prompt)


def _token_ids(param: str) -> Finding:
    return Finding(what="token ids, which can't be checked", param=param)


def _strings(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every string below a value with its path, keys of objects too."""
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, list):
            waiting += reversed([(f"{path}[{at}]", item) for at, item in enumerate(value)])
        elif isinstance(value, dict):
            yield from ((path, key) for key in value)
            prefix = f"{path}." if path else ""
            waiting += reversed([(prefix + key, item) for key, item in value.items()])
