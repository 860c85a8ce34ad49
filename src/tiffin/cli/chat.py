"""A conversation in the terminal with a running server: streamed, multi-turn, interruptible."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tiffin.cli.connect import Refused

PREFERRED = ("chat", "chat-tiny")
ANSWER_TOKENS = 512


class Server(Protocol):
    """Who is talked to: an `Address`."""

    def call(self, method: str, path: str) -> Any:
        """The decoded answer."""
        ...

    def stream(self, path: str, body: Any) -> AbstractContextManager[Iterator[Any]]:
        """The events that answer a POST; leaving cancels."""
        ...


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

    server: Server
    model: str
    messages: list[dict[str, str]] = field(default_factory=list)

    def say(self, text: str, screen: Screen) -> None:
        """Send a turn and show the answer's words as they come, ended by a line break."""
        self.messages.append({"role": "user", "content": text})
        words: list[str] = []
        body = {
            "max_tokens": ANSWER_TOKENS,
            "model": self.model,
            "messages": self.messages,
            "stream": True,
        }
        try:
            with self.server.stream("/v1/chat/completions", body) as events:
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


def default_model(server: Server) -> str:
    """The model to talk to when none is named: the larger starter model, or the first that is."""
    names = [model["id"] for model in server.call("GET", "/v1/models")["data"]]
    return next((name for name in PREFERRED if name in names), names[0] if names else PREFERRED[0])


def talk(conversation: Conversation, prompt: str) -> None:
    """One question and its answer, or a conversation; what is piped in goes before the prompt."""
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    if text := "\n\n".join(filter(None, (piped.strip(), prompt.strip()))):
        conversation.say(text, sys.stdout)
    elif sys.stdin.isatty():
        print(f"Talking to {conversation.model}. Ctrl-C stops an answer, Ctrl-D ends.")
        converse(conversation, sys.stdout)


def converse(conversation: Conversation, screen: Screen) -> None:
    """Turn by turn until the end of input; Ctrl-C stops an answer, and at the prompt everything."""
    import readline  # noqa: F401 - gives `input` its line editing and history

    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            screen.write("\n")
            return
        if text:
            try:
                conversation.say(text, screen)
            except KeyboardInterrupt:
                sys.stderr.write("(stopped)\n")
            except Refused as refusal:
                sys.stderr.write(f"({refusal})\n")
