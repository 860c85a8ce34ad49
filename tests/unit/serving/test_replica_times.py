"""A replica's timeouts, each with its name, and what overload does to it; in virtual time."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.virtual_time import LoopClock, in_virtual_time
from tiffin.config.models import EchoModel
from tiffin.errors import ModelTimeout, Overloaded, TiffinError
from tiffin.serving.context import Context
from tiffin.serving.progress import ProgressFile
from tiffin.serving.replica import Replica, Served
from tiffin.serving.timeouts import Timeouts
from tiffin.testing.echo import EchoRuntime
from tiffin.types.snapshot import Deployment
from tiffin.types.text import CompletionRequest

NOBODY = Context()


class Bench:
    """A replica over the echo model, with what it reported."""

    def __init__(self, folder: Path, timeouts: Timeouts, **settings: float) -> None:
        spec = msgspec.convert({"runtime": "echo", **settings}, EchoModel)
        deployment = Deployment(
            model="m", revision="r", socket="", spec=msgspec.Raw(msgspec.json.encode(spec))
        )
        self.runtime = EchoRuntime(deployment)
        self.served: list[Served] = []
        self.replica = Replica(
            self.runtime,
            LoopClock(),
            ProgressFile(folder / "m.progress"),
            self.served.append,
            timeouts,
        )

    async def ready(self, queue: int = 64) -> None:
        await self.replica.load(queue)
        await self.replica.warm_up()

    async def ask(
        self,
        words: int,
        context: Context = NOBODY,
        *,
        rest_s: float = 0.0,
    ) -> int:
        """How many words came; the reader rests before its first."""
        request = CompletionRequest(model="m", prompt="a " * words, max_tokens=words)
        prompts = await self.replica.prepare(request, context)
        async with self.replica.answer(prompts, 1, context) as answer:
            await asyncio.sleep(rest_s)
            return sum([piece.delta.tokens async for pieces in answer for piece in pieces])


def test_who_waits_for_a_slot_for_too_long_is_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        bench = Bench(tmp_path, Timeouts(queue_s=2.0), slots=1, token_ms=1000)
        await bench.ready()
        first = asyncio.ensure_future(bench.ask(30))
        await asyncio.sleep(1)
        # What was learnt is forgotten, so that nothing is foreseen.
        bench.replica.lanes._foresight.pace.reading.__init__()  # type: ignore[misc]
        began = asyncio.get_running_loop().time()
        with pytest.raises(Overloaded, match=r"within 2 s \(queue_timeout_s\)"):
            await bench.ask(1)
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0)
        assert await first == 30
        assert bench.replica.lanes.refusals["waited"] == 1
        assert bench.replica.lanes.waiting == bench.replica.lanes.running == 0

    in_virtual_time(main)


@pytest.mark.parametrize(
    ("settings", "timeouts", "said", "after_s"),
    [
        ({"prefill_ms": 900_000}, Timeouts(first_token_s=5.0), "first_token_timeout_s", 5.0),
        ({"token_ms": 1000}, Timeouts(between_tokens_s=0.5), "between_tokens_timeout_s", 1.5),
    ],
    ids=["first", "between"],
)
def test_what_the_model_takes_too_long_for_is_told(
    tmp_path: Path, settings: dict[str, float], timeouts: Timeouts, said: str, after_s: float
) -> None:
    async def main() -> None:
        bench = Bench(tmp_path, Timeouts(), **settings)
        await bench.ready()
        bench.replica.timeouts = timeouts
        began = asyncio.get_running_loop().time()
        with pytest.raises(ModelTimeout, match=said):
            await bench.ask(3)
        assert asyncio.get_running_loop().time() - began == pytest.approx(after_s)
        assert bench.runtime.running == bench.replica.lanes.running == 0

    in_virtual_time(main)


def test_a_slow_reader_is_no_fault_of_the_model_s(tmp_path: Path) -> None:
    async def main() -> None:
        bench = Bench(tmp_path, Timeouts(0, 1.0, 0.5), token_ms=1)
        await bench.ready()
        assert await bench.ask(400, rest_s=600.0) == 400

    in_virtual_time(main)


@pytest.mark.parametrize("times", [4, 10])
def test_overload_leaves_goodput_at_its_peak_and_answers_in_time(
    tmp_path: Path, times: int
) -> None:
    slots, objective_s, seconds = 4, 10.0, 60.0
    took: list[float] = []
    busy_s = 0.0
    ended: Counter[str] = Counter()

    async def main() -> None:
        nonlocal busy_s
        bench = Bench(tmp_path, Timeouts(), slots=slots, prefill_ms=200, token_ms=20)
        await bench.ready()
        draw = random.Random(3)
        loop = asyncio.get_running_loop()

        async def one(words: int) -> None:
            nonlocal busy_s
            began = loop.time()
            aim = began + 0.9 * objective_s
            context = Context(draw.choice("ab"), began + 4 * objective_s, aim=aim)
            try:
                assert await bench.ask(words, context) == words
            except TiffinError as error:
                ended[error.slug] += 1
            else:
                took.append(loop.time() - began)
                busy_s += 0.2 + 0.02 * words

        lengths = (10, 40, 90, 180)
        mean_s = 0.2 + 0.02 * sum(lengths) / len(lengths)
        async with asyncio.TaskGroup() as group:
            while loop.time() < seconds:
                group.create_task(one(draw.choice(lengths)))
                await asyncio.sleep(draw.expovariate(times * slots / mean_s))

    in_virtual_time(main)
    took.sort()
    assert took[int(0.95 * len(took))] <= objective_s
    assert busy_s >= 0.95 * slots * seconds
    assert set(ended) == {"overloaded"}
