"""What a turn of the loop writes goes out together, in order, and closings come after it."""

import asyncio

from tiffin.app.outbox import ClosingsAfterAnswers, LoopOutbox
from tiffin.telemetry.events import Closed, Opened, Outcome


class FakeTransport(asyncio.WriteTransport):
    """Notes what is written to it."""

    def __init__(self, name: str, seen: list[str]) -> None:
        super().__init__()
        self.name = name
        self.seen = seen
        self.closed = False

    def write(self, data: object) -> None:
        self.seen.append(f"{self.name}:{bytes(data).decode()}")  # type: ignore[call-overload]

    def is_closing(self) -> bool:
        return self.closed


class Sink:
    """Notes what is closed."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def open(self, event: Opened) -> None:
        self.seen.append(f"open {event.id}")

    def close(self, event: Closed) -> None:
        self.seen.append(f"close {event.id}")


def closed(name: str) -> Closed:
    return Closed(id=name, at_ns=1, outcome=Outcome.OK, status=200)


async def test_writes_wait_for_the_end_of_the_turn_and_keep_their_order() -> None:
    seen: list[str] = []
    outbox = LoopOutbox(asyncio.get_running_loop())
    one, two = FakeTransport("1", seen), FakeTransport("2", seen)
    outbox.write(one, b"a")
    outbox.write(two, b"b")
    outbox.write(one, b"c")
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["1:a", "2:b", "1:c"]


async def test_a_flush_sends_at_once_and_nothing_twice() -> None:
    seen: list[str] = []
    outbox = LoopOutbox(asyncio.get_running_loop())
    outbox.write(FakeTransport("1", seen), b"a")
    outbox.flush()
    assert seen == ["1:a"]
    await asyncio.sleep(0)
    assert seen == ["1:a"]


async def test_a_transport_that_was_closed_meanwhile_gets_nothing_and_stops_no_other() -> None:
    seen: list[str] = []
    outbox = LoopOutbox(asyncio.get_running_loop())
    gone, here = FakeTransport("gone", seen), FakeTransport("here", seen)
    outbox.write(gone, b"a")
    outbox.write(here, b"b")
    gone.closed = True
    await asyncio.sleep(0)
    assert seen == ["here:b"]


async def test_an_account_is_opened_at_once_and_closed_after_its_answer_went_out() -> None:
    seen: list[str] = []
    outbox = LoopOutbox(asyncio.get_running_loop())
    sink = ClosingsAfterAnswers(Sink(seen), outbox)
    sink.open(Opened(id="r", at_ns=1, tenant="t", key="k", endpoint="chat"))
    sink.close(closed("early"))
    outbox.write(FakeTransport("1", seen), b"answer")
    sink.close(closed("r"))
    assert seen == ["open r"]
    await asyncio.sleep(0)
    assert seen == ["open r", "1:answer", "close early", "close r"]
