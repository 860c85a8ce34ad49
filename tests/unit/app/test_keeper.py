import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from tiffin.app.boot import EXIT_PERMANENT
from tiffin.app.keeper import LOADING_GRACE_S, Keeper, News, Post
from tiffin.app.log_file import Voice
from tiffin.control.fleet.status import ProcessStatus, State
from tiffin.control.fleet.stuck import Patience
from tiffin.errors import Unavailable
from tiffin.ports.launcher import Child, Left, Output, Pulse
from tiffin.serving.progress import Phase, ProgressFile


class FakeChild:
    """A process that ends when it is told to, and notes how."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.signals: list[int] = []
        self.graces: list[float] = []
        self.cpu_s = 0.0
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    def pulse(self) -> Pulse | None:
        return Pulse(state="S", cpu_s=self.cpu_s)

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.end(-number)

    def left(self) -> Left | None:
        return Left(pid=self.pid, output_fd=-1)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    async def stop(self, grace_s: float) -> int:
        self.graces.append(grace_s)
        self.end(0)
        return await self.wait()


class FakeLauncher:
    """Remembers what it started; refuses the next `failures` starts."""

    def __init__(self) -> None:
        self.children: list[FakeChild] = []
        self.failures = 0

    def start(self, command: Sequence[str], output: Output, pass_fds: Sequence[int] = ()) -> Child:
        if self.failures:
            self.failures -= 1
            raise Unavailable("no more processes")
        self.children.append(FakeChild(100 + len(self.children)))
        return self.children[-1]

    def adopt(self, left: Left, output: Output) -> Child:
        self.children.append(FakeChild(left.pid))
        return self.children[-1]


class Scene:
    """A keeper at work among fakes."""

    def __init__(self, run: Path, patience: Patience) -> None:
        self.run = run
        self.launcher = FakeLauncher()
        self.news: list[tuple[News, ProcessStatus, float]] = []
        post = Post(
            name="r-chat",
            role="replica",
            run=run,
            command=lambda: ["replica"],
            patience=patience,
            grace_s=7.0,
        )
        self.voice = Voice("r-chat", lambda line: None)
        self.keeper = Keeper(post, self.launcher, self.voice, lambda *told: self.news.append(told))
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        self.task = self.task or asyncio.create_task(self.keeper.keep())
        return self.task

    @property
    def state(self) -> State:
        return self.keeper.status.state

    async def child(self, n: int) -> FakeChild:
        self.begin()
        await until(lambda: len(self.launcher.children) > n)
        return self.launcher.children[n]

    def write(self, suffix: str, text: str = "") -> Path:
        path = self.run / f"r-chat{suffix}"
        path.write_text(text)
        return path


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path, Patience(frozen_s=0.3))
    yield scene
    scene.keeper.kill()
    await asyncio.wait([scene.begin()])


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - time itself is waited for
            await asyncio.sleep(0.005)


async def test_a_process_that_ends_is_started_again_at_once(scene: Scene) -> None:
    (await scene.child(0)).end(1)
    second = await scene.child(1)
    assert scene.keeper.status.restarts == 1
    assert scene.keeper.status.pid == second.pid
    assert scene.keeper.status.reason == "exit code 1"
    assert [news for news, _, _ in scene.news] == [News.STARTED, News.ENDED, News.STARTED]


async def test_a_process_goes_on_in_the_hands_of_another_keeper(scene: Scene) -> None:
    await scene.child(0)
    progress = ProgressFile(scene.run / "r-chat.progress")
    progress.phase(Phase.READY)
    await until(lambda: scene.state is State.READY)
    scene.voice(b"so far so good\n")
    kept = scene.keeper.kept
    assert scene.task is not None
    scene.task.cancel()  # ends this program's part of it
    await asyncio.wait([scene.task])

    other = Scene(scene.run, Patience(frozen_s=30.0))
    ProgressFile(scene.run / "r-chat.progress").phase(Phase.READY)
    other.keeper.adopt(kept)
    child = await other.child(0)
    assert other.keeper.status == kept.status
    assert child.pid == kept.status.pid
    assert other.voice.last == "so far so good"
    assert other.news == []
    assert (scene.run / "r-chat.progress").exists()
    child.end(1)
    await other.child(1)
    assert [news for news, _, _ in other.news] == [News.ENDED, News.STARTED]
    assert other.keeper.status.restarts == 1
    other.keeper.kill()
    await asyncio.wait([other.begin()])


async def test_what_it_printed_last_is_kept_apart_from_the_reason(scene: Scene) -> None:
    child = await scene.child(0)
    scene.voice(b"the customer is called Ada\n")
    child.end(1)
    await scene.child(1)
    assert scene.keeper.status.reason == "exit code 1"
    assert scene.keeper.status.explained == "exit code 1: the customer is called Ada"


async def test_a_process_in_a_crash_loop_waits_longer_each_time(scene: Scene) -> None:
    for n in range(4):
        (await scene.child(n)).end(-signal.SIGSEGV)
    await until(lambda: len(scene.news) == 8)
    assert [delay for news, _, delay in scene.news if news is News.ENDED] == [0.0, 0.1, 0.2, 0.4]
    assert scene.keeper.status.reason == "killed by SIGSEGV"


async def test_ready_is_what_the_progress_file_says(scene: Scene) -> None:
    child = await scene.child(0)
    progress = ProgressFile(scene.run / "r-chat.progress")
    assert scene.state is State.STARTING
    progress.phase(Phase.READY)
    await until(lambda: scene.state is State.READY)
    assert scene.news[-1][0] is News.READY
    assert child.signals == []
    progress.close()


async def test_a_stuck_process_is_killed_and_replaced(scene: Scene) -> None:
    child = await scene.child(0)
    progress = ProgressFile(scene.run / "r-chat.progress")
    progress.phase(Phase.READY)
    await scene.child(1)
    assert child.signals == [signal.SIGKILL]
    assert "nothing moved" in scene.keeper.status.reason
    progress.close()


async def test_a_failure_that_wont_mend_waits_for_a_change(scene: Scene) -> None:
    child = await scene.child(0)
    scene.write(".state.json", '{"phase":"failed","reason":"wrong digest","load_ms":1}')
    child.end(EXIT_PERMANENT)
    await until(lambda: scene.state is State.FAILED)
    assert scene.keeper.status.reason == "wrong digest"
    assert (scene.run / "r-chat.state.json").exists()
    scene.keeper.wake()
    await scene.child(1)
    assert not (scene.run / "r-chat.state.json").exists()


async def test_what_a_dead_process_left_is_removed(scene: Scene) -> None:
    child = await scene.child(0)
    left = [scene.write(suffix) for suffix in (".sock", ".engine.sock", ".progress", ".state.json")]
    left.append(scene.run / "r-chat.files")
    (left[-1] / "files-1").mkdir(parents=True)
    (left[-1] / "files-1" / "model.py").touch()
    child.end(-signal.SIGKILL)
    await scene.child(1)
    assert [path for path in left if path.exists()] == []


async def test_a_replica_that_still_loads_is_not_waited_for(scene: Scene) -> None:
    child = await scene.child(0)
    await scene.keeper.stop()
    assert child.graces == [LOADING_GRACE_S]


async def test_stop_lets_the_process_end_and_starts_no_other(scene: Scene) -> None:
    child = await scene.child(0)
    progress = ProgressFile(scene.run / "r-chat.progress")
    progress.phase(Phase.READY)
    await scene.keeper.stop()
    progress.close()
    assert child.graces == [7.0]
    assert scene.state is State.ENDED
    assert len(scene.launcher.children) == 1
    assert [news for news, _, _ in scene.news] == [News.STARTED]


async def test_a_retired_process_goes_on_but_has_no_successor(scene: Scene) -> None:
    child = await scene.child(0)
    scene.keeper.retire()
    assert child.signals == []
    child.end(0)
    await scene.keeper.ended()
    assert len(scene.launcher.children) == 1


async def test_stop_doesnt_wait_for_the_next_start(scene: Scene) -> None:
    (await scene.child(0)).end(EXIT_PERMANENT)
    await until(lambda: scene.state is State.FAILED)
    await scene.keeper.stop()
    assert len(scene.launcher.children) == 1


async def test_stop_before_the_first_start_starts_nothing(scene: Scene) -> None:
    stopping = asyncio.create_task(scene.keeper.stop())
    await asyncio.sleep(0)
    await scene.begin()
    await stopping
    assert scene.launcher.children == []


async def test_kill_makes_a_running_stop_short(scene: Scene) -> None:
    child = await scene.child(0)
    scene.keeper.kill()
    await scene.keeper.ended()
    assert child.signals == [signal.SIGKILL]


async def test_a_start_that_fails_is_tried_again(scene: Scene) -> None:
    scene.launcher.failures = 2
    await scene.child(0)
    assert scene.keeper.status.reason == "no more processes"
    assert scene.keeper.status.restarts == 2


async def test_cancelling_the_keeper_kills_its_process(scene: Scene) -> None:
    child = await scene.child(0)
    scene.begin().cancel()
    await asyncio.wait([scene.begin()])
    assert child.signals == [signal.SIGKILL]
