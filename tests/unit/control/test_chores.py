"""Chores go on whatever happens, and say what does."""

import asyncio

from tests.polling import eventually
from tiffin.control.chores import Chore
from tiffin.errors import Unavailable


class Work:
    """Fails as often as it is told."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.done = asyncio.Event()
        self.tries = 0

    async def __call__(self) -> None:
        self.tries += 1
        if self.failures:
            raise self.failures.pop(0)
        self.done.set()


async def finished(chore: Chore, work: Work) -> None:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(chore.run())
        await work.done.wait()
        task.cancel()


async def test_it_is_done_again_and_again() -> None:
    work = Work()
    chore = Chore("c", work, 0.0)
    await finished(chore, work)
    assert work.tries >= 1
    assert chore.fault == ""


async def test_after_a_failure_it_is_tried_again() -> None:
    work = Work(Unavailable("the disk is full"))
    chore = Chore("c", work, 0.0)
    task = asyncio.create_task(chore.run())
    await eventually(lambda: chore.fault)
    assert chore.fault == "the disk is full"
    await eventually(lambda: not chore.fault)
    task.cancel()
    assert work.tries >= 2


async def test_a_defect_is_told_by_its_kind() -> None:
    work = Work(KeyError("x"))
    chore = Chore("c", work, 0.0)
    task = asyncio.create_task(chore.run())
    await eventually(lambda: chore.fault)
    task.cancel()
    assert chore.fault == "KeyError: 'x'"


async def test_what_is_done_once_ends() -> None:
    work = Work()
    await asyncio.wait_for(Chore("c", work, None).run(), 10)
    assert work.tries == 1


async def test_a_chore_without_work_comes_back_later() -> None:
    counts = [1, 0, 1]

    async def work() -> int:
        return counts.pop(0)

    running = asyncio.ensure_future(Chore("c", work, 0.0, idle_s=3600.0).run())
    await eventually(lambda: counts == [1])
    for _ in range(20):
        await asyncio.sleep(0)
    assert counts == [1]
    running.cancel()
