"""A conversation keeps what was said, as far as it was said."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tiffin.cli.chat import Conversation, default_model
from tiffin.cli.connect import Refused, Unreachable

Script = Callable[[], Iterator[Any]]


class Scripted:
    """A server that answers from a script and keeps what it was asked."""

    def __init__(self, script: Script | None = None, models: tuple[str, ...] = ()) -> None:
        self.script = script
        self.models = models
        self.asked: list[Any] = []

    def call(self, method: str, path: str) -> Any:
        return {"data": [{"id": name} for name in self.models]}

    @contextmanager
    def stream(self, path: str, body: Any) -> Iterator[Iterator[Any]]:
        assert self.script is not None
        self.asked.append([dict(message) for message in body["messages"]])
        yield self.script()


def words(*said: str, then: BaseException | None = None) -> Script:
    def events() -> Iterator[Any]:
        yield {"choices": [{"delta": {"role": "assistant"}}]}
        for word in said:
            yield {"choices": [{"delta": {"content": word}}]}
        if then is not None:
            raise then
        yield {"choices": [], "usage": {}}

    return events


def test_an_answer_is_shown_as_it_comes_and_remembered() -> None:
    server, screen = Scripted(words("a", "b")), io.StringIO()
    conversation = Conversation(server, "chat")
    conversation.say("one", screen)
    conversation.say("two", screen)
    assert screen.getvalue() == "ab\nab\n"
    assert [message["content"] for message in server.asked[1]] == ["one", "ab", "two"]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Unreachable("cut"), Refused(200, "stopped")])
def test_an_answer_that_broke_off_is_remembered_as_far_as_it_came(end: BaseException) -> None:
    conversation, screen = Conversation(Scripted(words("half", then=end)), "chat"), io.StringIO()
    with pytest.raises(type(end)):
        conversation.say("one", screen)
    assert [message["content"] for message in conversation.messages] == ["one", "half"]
    assert screen.getvalue() == "half\n"


def test_a_turn_without_an_answer_was_never_said() -> None:
    conversation = Conversation(Scripted(words(then=Refused(503, "busy"))), "chat")
    with pytest.raises(Refused):
        conversation.say("one", io.StringIO())
    assert conversation.messages == []


@pytest.mark.parametrize(
    ("names", "chosen"),
    [(("chat-tiny", "chat"), "chat"), (("chat-tiny", "x"), "chat-tiny"), (("x", "y"), "x")],
)
def test_the_model_to_talk_to(names: tuple[str, ...], chosen: str) -> None:
    assert default_model(Scripted(models=names)) == chosen
