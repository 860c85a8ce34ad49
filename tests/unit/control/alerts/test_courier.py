"""Messages are brought until they are taken, whatever one receiver does."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.virtual_time import LoopClock, in_virtual_time
from tiffin.config.alerts import Alert
from tiffin.control.alerts.courier import LAST_RETRY_S, Courier, Receiver
from tiffin.control.alerts.outbox import Message, Outbox
from tiffin.errors import UpstreamUnavailable
from tiffin.ports.webhooks import Lines
from tiffin.telemetry.metrics import Meter

NAMES = ("ops", "far")
RECEIVERS = {
    name: Receiver(Alert(url=f"https://{name}.example.com/", key_env="K"), "k") for name in NAMES
}


class FakeWebhooks:
    """`answer` is given the host and how often it was asked."""

    def __init__(self, answer: Callable[[str, int], int]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, float]] = []

    async def post(self, url: str, headers: Lines, body: bytes, *, within_s: float) -> int:
        host = url.split("/")[2].split(".")[0]
        name = dict(headers)[b"webhook-id"].decode()
        self.asked.append((host, name, asyncio.get_running_loop().time()))
        status = self.answer(host, sum(one[0] == host for one in self.asked))
        if status < 0:
            await asyncio.sleep(within_s)
        if status <= 0:
            raise UpstreamUnavailable("no answer")
        return status


def message(to: str, number: int = 1) -> Message:
    return Message(id=f"alr_{to}_{number}", to=to, at_ns=LoopClock().now_ns(), body="{}")


def brought(
    path: Path, to: tuple[str, ...], answer: Callable[[str, int], int], seconds: float = 3600.0
) -> tuple[FakeWebhooks, Outbox]:
    """What happens to a message for each of these within a time."""

    async def main() -> tuple[FakeWebhooks, Outbox]:
        meter = Meter("control", "")
        outbox, webhooks = Outbox(path / "alerts.json", meter), FakeWebhooks(answer)
        outbox.put([message(name, number) for number, name in enumerate(to)], {})
        courier = Courier(outbox, webhooks, lambda: RECEIVERS, LoopClock(), meter)
        running = asyncio.create_task(courier.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait([running])
        return webhooks, outbox

    return in_virtual_time(main)


def test_one_that_is_taken_is_told_once(tmp_path: Path) -> None:
    webhooks, outbox = brought(tmp_path, ("ops",), lambda host, n: 204)
    assert len(webhooks.asked) == 1
    assert outbox.waiting == ()


def test_it_waits_ever_longer_between_tries_up_to_a_cap(tmp_path: Path) -> None:
    answers: dict[int, int] = {1: 500, 2: 0, 3: 302}
    webhooks, outbox = brought(tmp_path, ("ops",), lambda host, n: answers.get(n, 429))
    times = [at for _, _, at in webhooks.asked]
    waits = [round(b - a) for a, b in itertools.pairwise(times)]
    assert waits[:5] == [1, 2, 4, 8, 16]
    assert max(waits) == LAST_RETRY_S
    assert len(outbox.waiting) == 1


def test_who_hangs_holds_up_nobody_else(tmp_path: Path) -> None:
    def answer(host: str, n: int) -> int:
        return -1 if host == "far" else 200

    webhooks, outbox = brought(tmp_path, ("far", "ops", "ops"), answer, 5.0)
    assert [host for host, _, _ in webhooks.asked] == ["far", "ops", "ops"]
    assert [one.to for one in outbox.waiting] == ["far"]


def test_a_message_that_isnt_taken_holds_up_no_other(tmp_path: Path) -> None:
    webhooks: Any
    webhooks, outbox = brought(tmp_path, ("ops", "ops"), lambda host, n: 400 if n == 1 else 200)
    assert outbox.waiting == ()
    assert [name for _, name, _ in webhooks.asked] == ["alr_ops_0", "alr_ops_1", "alr_ops_0"]


def test_nothing_is_sent_or_dropped_without_a_configuration(tmp_path: Path) -> None:
    async def main() -> Outbox:
        outbox = Outbox(tmp_path / "alerts.json", Meter("control", ""))
        outbox.put([message("ops")], {})
        webhooks = FakeWebhooks(lambda host, n: 204)
        courier = Courier(outbox, webhooks, lambda: None, LoopClock(), Meter("control", ""))
        running = asyncio.create_task(courier.run())
        await asyncio.sleep(60)
        running.cancel()
        await asyncio.wait([running])
        assert webhooks.asked == []
        return outbox

    assert len(in_virtual_time(main).waiting) == 1


def test_what_nobody_expected_of_one_ends_no_other(tmp_path: Path) -> None:
    def answer(host: str, n: int) -> int:
        if host == "ops":
            raise UnicodeError("no host's name")
        return -1 if n == 1 else 200

    webhooks, outbox = brought(tmp_path, NAMES, answer, 60.0)
    hosts = [host for host, _, _ in webhooks.asked]
    assert hosts.count("far") == 2
    assert 2 < hosts.count("ops") < 10
    assert [one.to for one in outbox.waiting] == ["ops"]
