"""The watch over all keys: episodes, throttles, bounded room, and quiet on an ordinary day."""

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests.unit.gateway.limits.desk import Sink
from tests.unit.gateway.test_walk import ScriptedBackend, Shop, whole
from tiffin.dialects.openai.text import TextEndpoint
from tiffin.errors import RateLimited
from tiffin.gateway.account import Account, Accounts
from tiffin.gateway.anomalies.watch import EPISODE_S, Watch
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock
from tiffin.testing.exchange import FakeExchange
from tiffin.types.anomalies import Anomalies, Threshold
from tiffin.types.snapshot import Principal
from tiffin.types.usage import Usage

THREE = Threshold(count=3, within_s=60.0)
THROTTLE = Anomalies(action="throttle", repetition=THREE, throttle_s=60.0, throttle_per_minute=6)
CHAT = TextEndpoint("chat", b"/v1/chat/completions")
POST = FakeExchange(b"POST", b"/v1/chat/completions")
WEB = Principal(tenant="acme", key="web")


class Post:
    """A watch and requests that come to it; time is the clock's."""

    def __init__(self, says: Anomalies, most: int = 100_000) -> None:
        self.clock = FakeClock()
        self.says = says
        self.watch = Watch(self.clock, Meter("gateway", "e"), most)
        self.accounts = Accounts(Sink(), Meter("t", "e"), self.clock)

    def ask(
        self, *texts: str, who: Principal = WEB, made: int = 0, most: int | None = None
    ) -> Account:
        """One request, whose answer came to `made` tokens; raises what a throttle says."""
        self.watch.admit(who, self.says)
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
        body: dict[str, Any] = {"model": "m", "messages": messages, "max_tokens": most}
        asked = CHAT.read(POST, msgspec.json.encode({k: v for k, v in body.items() if v}))
        account = self.accounts.open(who, "chat", POST, 1)
        seen = self.watch.asked(who, asked, account, self.says)
        account.usage = Usage(completion_tokens=made)
        if seen is not None:
            self.watch.answered(seen)
        return account

    def signals(self) -> list[str]:
        return [one.signal for one in self.watch.told()]


def test_a_loop_is_told_once_and_again_when_it_came_back_much_later() -> None:
    post = Post(Anomalies(action="alert", repetition=THREE))
    for _ in range(9):
        post.ask("again")
    (first,) = post.watch.told()
    assert (first.tenant, first.key, first.signal, first.count) == ("acme", "web", "repetition", 7)
    assert first.until_ns == 0
    post.clock.advance(EPISODE_S + 1)
    assert post.watch.told() == ()
    for _ in range(3):
        post.ask("again")
    (second,) = post.watch.told()
    assert second.since_ns > first.since_ns


def test_an_alert_throttles_nobody() -> None:
    post = Post(Anomalies(action="alert", repetition=THREE))
    for _ in range(50):
        post.ask("again")


def test_a_throttle_lets_so_many_through_and_ends() -> None:
    post = Post(THROTTLE)
    for _ in range(3):
        post.ask("again")
    with pytest.raises(RateLimited, match=r"'acme/web' is throttled .* \(repetition\)") as refusal:
        post.ask("another")
    assert refusal.value.retry_after == 10.0
    came = 0
    for _ in range(60):
        with suppress(RateLimited):
            post.ask("another", str(came))
            came += 1
        post.clock.advance(1.0)
    assert came == 5  # one in ten seconds; the first ten had their turn before
    for n in range(40):
        post.ask(f"free again, {n * n}")
    post.ask("nobody else is held", who=Principal(tenant="acme", key="other"))


def test_an_exempt_tenant_is_not_looked_at() -> None:
    post = Post(msgspec.structs.replace(THROTTLE, exempt=("acme",)))
    for _ in range(20):
        post.ask("again")
    assert post.signals() == []


@pytest.mark.parametrize(
    ("made", "most", "told"),
    [(600, 600, True), (600, 800, False), (300, 300, False), (600, None, False)],
    ids=["ended at its limit", "ended by itself", "short", "no limit said"],
)
def test_many_long_answers_that_end_at_their_limit_are_told(
    made: int, most: int | None, told: bool
) -> None:
    post = Post(Anomalies(action="alert", extraction=THREE))
    for n in range(6):
        post.ask(f"tell me all of {chr(97 + n) * 5}", made=made, most=most)
    assert ("extraction" in post.signals()) == told


def test_long_answers_to_random_text_are_told_wherever_they_end() -> None:
    letters = random.Random(5)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    post = Post(Anomalies(action="alert", extraction=THREE))
    for _ in range(6):
        post.ask("".join(letters.choices(alphabet, k=300)), made=600)
    assert "extraction" in post.signals()


def test_room_is_bounded_and_the_key_that_came_longest_ago_makes_it() -> None:
    post = Post(Anomalies(action="alert", repetition=THREE), most=50)
    for n in range(200):
        post.ask("hello", who=Principal(tenant="t", key=f"k{n}"))
    assert len(post.watch._keys) == 50
    for _ in range(2):
        post.ask("hello", who=Principal(tenant="t", key="k199"))
    assert post.signals() == ["repetition"]


def test_a_key_that_did_all_sorts_of_things_takes_less_than_two_kilobytes() -> None:
    post = Post(Anomalies(action="alert"))
    keys = 200
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for n in range(keys):
        who = Principal(tenant="t", key=f"key-{n}")
        for m in range(40):
            text = f"{chr(97 + m % 26) * (3 + m % 7)} {m * m}"
            post.ask(text, who=who, made=600, most=600)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / keys < 2048


async def test_a_throttled_key_gets_429_and_everything_is_given_back() -> None:
    shop = Shop(ScriptedBackend(whole()))
    shop.snapshot = msgspec.structs.replace(shop.snapshot, number=9, anomalies=THROTTLE)
    assert [(await shop.ask()).status for _ in range(3)] == [200, 200, 200]
    with pytest.raises(RateLimited):
        await shop.ask()
    assert (await shop.ask(key="sk-other-000000000000")).status == 200
    shop.settled()


# ---- An ordinary day -----------------------------------------------------------------------------


def chats(dice: random.Random) -> Iterator[tuple[float, str, list[str], int]]:
    """A website's users: each talks for some turns, a turn in half a minute."""
    for user in range(150):
        at, texts = dice.uniform(0, 80_000), []
        for turn in range(dice.randint(1, 14)):
            texts += [f"question {turn} of {user}: {words(dice, 12)}"]
            yield at, "website", list(texts), dice.randint(20, 700)
            texts += [f"answer {words(dice, 40)}"]
            at += dice.uniform(8, 60)


def agents(dice: random.Random) -> Iterator[tuple[float, str, list[str], int]]:
    """Agents that take up to forty steps, seconds apart."""
    for run in range(40):
        at, texts = dice.uniform(0, 80_000), [f"task {run}: {words(dice, 15)}"]
        for _ in range(dice.randint(3, 40)):
            yield at, "agent", list(texts), dice.randint(10, 300)
            texts += [words(dice, 20), f"tool says {words(dice, 30)}"]
            at += dice.uniform(2, 15)


def batches(dice: random.Random) -> Iterator[tuple[float, str, list[str], int]]:
    """A nightly batch: the same instructions with another text each, as fast as it goes."""
    for row in range(2_000):
        text = f"Classify this review: {words(dice, 25)} It cost {dice.randint(1, 900)}."
        yield 7_200 + row * 0.5, "batch", [text], 3


def probes(dice: random.Random) -> Iterator[tuple[float, str, list[str], int]]:
    """A monitor that asks the same every ten seconds."""
    yield from ((at, "monitor", ["ping"], 1) for at in range(0, 86_400, 10))


def writers(dice: random.Random) -> Iterator[tuple[float, str, list[str], int]]:
    """People who have long texts written; some run into the limit."""
    for _ in range(300):
        made = dice.choice([600, 900, 1500, 2000])
        yield dice.uniform(0, 86_000), "writers", [f"write about {words(dice, 10)}"], made


def words(dice: random.Random, count: int) -> str:
    syllables = ["ba", "ko", "ri", "ta", "mu", "sen", "dal", "pi", "lor", "an"]
    return " ".join("".join(dice.choices(syllables, k=dice.randint(1, 4))) for _ in range(count))


@pytest.mark.parametrize("seed", [1, 2])
def test_an_ordinary_day_gives_no_alarm(seed: int) -> None:
    dice = random.Random(seed)
    day = [one for kind in (chats, agents, batches, probes, writers) for one in kind(dice)]
    post = Post(Anomalies(action="alert"))
    start = post.clock.monotonic()
    for at, key, texts, made in sorted(day, key=lambda one: one[0]):
        post.clock.advance(max(0.0, start + at - post.clock.monotonic()))
        post.ask(*texts, who=Principal(tenant="t", key=key), made=made, most=2000)
        assert post.signals() == []
