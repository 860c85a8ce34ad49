"""A conversation in the terminal with a running server: streamed, multi-turn, interruptible."""

import sys
from dataclasses import dataclass, field
from typing import Any, Protocol

from tiffin.cli.connect import Address

PREFERRED = ("chat", "chat-tiny")


class Screen(Protocol):
    """Where the words go, for example `sys.stdout`."""

    def write(self, text: str, /) -> object:
        """Show text."""
        ...

    def flush(self) -> object:
        """Let it be seen now."""
        ...


@dataclass(slots=True)
class Conversation:
    """Turns so far with one model. A turn that was interrupted stays as far as it came."""

    address: Address
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)

    def say(self, text: str, screen: Screen) -> None:
        """Send a turn and show the answer's words as they come, ended by a line break."""
        self.messages.append({"role": "user", "content": text})
        words: list[str] = []
        body = {"model": self.model, "messages": self.messages, "stream": True, **self.settings}
        try:
            with self.address.stream("/v1/chat/completions", body) as events:
                for event in events:
                    for choice in event.get("choices", ()):
                        if word := choice["delta"].get("content"):
                            words.append(word)
                            screen.write(word)
                            screen.flush()
        finally:
            if words:
                self.messages.append({"role": "assistant", "content": "".join(words)})
                screen.write("\n")
            else:
                self.messages.pop()


def default_model(address: Address) -> str:
    """The model to talk to when none is named: the larger starter model, or the first that is."""
    names = [model["id"] for model in address.call("GET", "/v1/models")["data"]]
    return next((name for name in PREFERRED if name in names), names[0] if names else PREFERRED[0])


def converse(conversation: Conversation, screen: Screen) -> None:
    """Turn by turn until the end of input; Ctrl-C stops an answer, and at the prompt everything."""
    import readline  # noqa: F401 - gives `input` its line editing and history

    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            screen.write("\n")
            return
        if text in ("/exit", "/quit"):
            return
        if text:
            try:
                conversation.say(text, screen)
            except KeyboardInterrupt:
                sys.stderr.write("(stopped)\n")
