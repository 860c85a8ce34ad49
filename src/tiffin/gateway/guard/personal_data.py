"""The guard that keeps personal data out of models: it finds what redaction would replace."""

from collections.abc import Iterable

from tiffin.ports.guard import Finding, Piece
from tiffin.telemetry.redact import find

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

    What can't be looked into (token ids, numbers, pictures) is a finding too.
    """

    checks_output = False

    def check_input(self, pieces: Iterable[Piece]) -> Finding | None:
        """The first piece of personal data by kind and place."""
        left = MAX_CHARACTERS
        for param, text in pieces:
            if text is None:
                return Finding(
                    what="token ids or other numbers, which can't be checked", param=param
                )
            left -= len(text)
            if left < 0:
                return Finding(what=f"over {MAX_CHARACTERS} characters to check", param=param)
            for found in find(text):
                return Finding(what=_NAMES[found.kind], param=param)
        return None

    def check_output(self, text: str) -> Finding | None:
        """Nothing: only input is looked at."""
        return None
