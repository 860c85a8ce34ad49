"""Stop texts in a text that comes in pieces: what may be the beginning of one is held back."""

from collections.abc import Sequence


class Stops:
    """Reads one answer's text along; once a stop text came, nothing more is let through."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._held = ""
        self.found = False

    def read(self, text: str) -> str:
        """What of the text so far may be shown now; `found` says that a stop text came."""
        self._held += text
        places = [at for stop in self._texts if (at := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            shown, self._held = self._held[: min(places)], ""
            return shown
        keep = max((_overlap(self._held, stop) for stop in self._texts), default=0)
        end = len(self._held) - keep
        shown, self._held = self._held[:end], self._held[end:]
        return shown

    def end(self) -> str:
        """What was held back for a stop that never came."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How long the beginning of `stop` is with which `text` ends."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
