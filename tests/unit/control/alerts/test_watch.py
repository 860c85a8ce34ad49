"""The watch looks now and then, tells what it can see, and rests in proportion."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tiffin.config.load import load_text
from tiffin.config.schema import Config
from tiffin.control.alerts.outbox import Outbox
from tiffin.control.alerts.watch import REST, Sights, Watch
from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.errors import Unavailable
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock

ALERT = '[alerts.ops]\nurl = "https://example.com/"\nkey_env = "K"\n'
MODELS = 'events = ["budget.threshold", "model.failed"]\n'


@dataclass
class FakeBudgets:
    """How budgets stand: not at all, after so many seconds."""

    clock: FakeClock
    takes_s: float = 0.0
    fails: bool = False
    asked: int = 0
    stands: list[Any] = field(default_factory=list)

    async def stand(self) -> list[Any]:
        self.asked += 1
        self.clock.advance(self.takes_s)
        if self.fails:
            raise Unavailable("the database can't be used")
        return self.stands


class Post:
    """A watch over fakes."""

    def __init__(self, folder: Path, text: str) -> None:
        self.config: Config = load_text(text.encode(), {}).config
        self.clock = FakeClock()
        self.budgets = FakeBudgets(self.clock)
        failed = ProcessStatus(
            name="r-m", role="replica", model="m", state=State.FAILED, since_ns=1
        )
        self.status = Status(pid=1, address="", started_ns=1, processes=(failed,))
        self.outbox = Outbox(folder / "alerts.json", Meter("control", ""))
        unused: Any = None
        budgets: Any = self.budgets
        sights = Sights(lambda: self.config, lambda: self.status, budgets, unused)
        self.watch = Watch(sights, self.outbox, self.clock)


async def test_what_can_be_seen_is_told_though_something_cant(tmp_path: Path) -> None:
    post = Post(tmp_path, ALERT + MODELS)
    post.budgets.fails = True
    for _ in range(2):
        with pytest.raises(Unavailable):
            await post.watch.look()
        post.clock.advance(1)
    assert len(post.outbox.waiting) == 1


async def test_the_longer_it_takes_the_longer_it_rests(tmp_path: Path) -> None:
    post = Post(tmp_path, ALERT + MODELS)
    post.budgets.takes_s = 2.0
    await post.watch.look()
    post.clock.advance(2 * REST - 0.1)
    await post.watch.look()
    assert post.budgets.asked == 1
    post.clock.advance(0.2)
    await post.watch.look()
    assert post.budgets.asked == 2


async def test_nobody_to_tell_nothing_to_look_at(tmp_path: Path) -> None:
    post = Post(tmp_path, "")
    await post.watch.look()
    assert (post.budgets.asked, post.outbox.waiting) == (0, ())
