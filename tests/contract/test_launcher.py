"""What every launcher promises, tried on children that were started here, and on adopted ones."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from tiffin.adapters.launchers.process import MAX_LINE, ProcessLauncher
from tiffin.errors import Unavailable
from tiffin.ports.launcher import Child, Launcher, Left

Start = Callable[..., Child]


@pytest.fixture
def launcher() -> Launcher:
    return ProcessLauncher()


@pytest.fixture(params=["started", "adopted"])
async def start(
    request: pytest.FixtureRequest, launcher: Launcher, said: list[bytes]
) -> AsyncIterator[Start]:
    children: list[Child] = []

    def start(program: str, pass_fds: Sequence[int] = ()) -> Child:
        command = [sys.executable, "-c", program]
        if request.param == "started":
            child = launcher.start(command, said.append, pass_fds)
        else:
            child = launcher.adopt(of_an_earlier_program(command, pass_fds), said.append)
        children.append(child)
        return child

    yield start
    for child in children:
        child.signal(signal.SIGKILL)
        await child.wait()


def of_an_earlier_program(command: list[str], pass_fds: Sequence[int]) -> Left:
    """A child as another program in this process would have left it: nobody here knows it."""
    reading, writing = os.pipe()
    try:
        pid = os.posix_spawn(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_DUP2, writing, 2),
                *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in pass_fds),
            ],
            setsid=True,
        )
    finally:
        os.close(writing)
    return Left(pid=pid, output_fd=reading)


@pytest.fixture
def said() -> list[bytes]:
    return []


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the other side is another process
            await asyncio.sleep(0.005)


async def test_an_exit_code_and_everything_that_was_said_arrive(
    start: Start, said: list[bytes]
) -> None:
    child = start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert await child.wait() == 3
    assert sorted(said) == [b"err", b"out"]
    assert await child.wait() == 3
    assert child.pulse() is None


async def test_a_signal_is_a_negative_exit_code(start: Start) -> None:
    child = start("import time; time.sleep(60)")
    child.signal(signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    child.signal(signal.SIGKILL)


async def test_a_child_that_obeys_is_not_killed(start: Start, said: list[bytes]) -> None:
    child = start(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    await until(lambda: b"up" in said)
    assert await child.stop(30.0) == 0


async def test_a_child_that_doesnt_obey_is_killed_after_its_grace(
    start: Start, said: list[bytes]
) -> None:
    child = start(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    await until(lambda: b"up" in said)
    assert await child.stop(0.1) == -signal.SIGKILL


async def test_a_stopped_child_can_be_asked_to_end(start: Start) -> None:
    child = start("import time; time.sleep(60)")
    child.signal(signal.SIGSTOP)
    await until(lambda: (pulse := child.pulse()) and pulse.state == "T")
    assert await child.stop(30.0) == -signal.SIGTERM


async def test_the_pulse_tells_work_from_waiting(start: Start) -> None:
    busy, idle = start("while True: pass"), start("import time; time.sleep(60)")
    await until(lambda: (pulse := busy.pulse()) and pulse.cpu_s > 0.3)
    pulse = idle.pulse()
    assert pulse is not None
    assert pulse.state == "S"
    assert pulse.cpu_s < 0.3


async def test_a_flood_of_output_doesnt_stop_the_child_and_long_lines_are_cut(
    start: Start, said: list[bytes]
) -> None:
    child = start("import sys\nfor n in range(40): print(str(n) + 'x' * 200_000)\nprint('end')")
    assert await child.wait() == 0
    assert said[-1] == b"end"
    assert [int(line.split(b"x")[0]) for line in said[:-1]] == list(range(40))
    assert max(map(len, said)) == MAX_LINE


async def test_a_child_has_no_input_and_its_own_session(start: Start, said: list[bytes]) -> None:
    await start("import os, sys; print(sys.stdin.read() == '', os.getsid(0) == os.getpid())").wait()
    assert said == [b"True True"]


async def test_a_child_inherits_what_is_passed_and_nothing_else(
    launcher: Launcher, said: list[bytes]
) -> None:
    passed, kept = os.pipe()
    os.set_inheritable(kept, False)
    program = (
        "import os\n"
        f"for fd in range(3, {kept + 64}):\n"
        "    try: os.fstat(fd)\n"
        "    except OSError: continue\n"
        "    print(fd)"
    )
    await launcher.start([sys.executable, "-c", program], said.append, (passed,)).wait()
    os.close(passed)
    os.close(kept)
    assert said == [str(passed).encode()]


async def test_grandchildren_end_with_the_child(
    start: Start, said: list[bytes], tmp_path: Path
) -> None:
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    child = start(program)
    await until(lambda: said)
    child.signal(signal.SIGKILL)
    began = time.monotonic()
    await child.wait()
    assert time.monotonic() - began < 5
    await until(lambda: not is_running(int(said[0])))


async def test_a_line_that_was_half_read_is_whole_for_whoever_adopts(
    launcher: Launcher, said: list[bytes]
) -> None:
    program = "print('morning', flush=True); import time; time.sleep(60)"
    left = of_an_earlier_program([sys.executable, "-c", program], ())
    child = launcher.adopt(msgspec.structs.replace(left, rest=b"good "), said.append)
    await until(lambda: said)
    assert said == [b"good morning"]
    again = child.left()
    assert again == left
    await child.stop(10.0)
    assert child.left() is None


async def test_one_that_ended_meanwhile_is_seen_off(launcher: Launcher, said: list[bytes]) -> None:
    left = of_an_earlier_program([sys.executable, "-c", "print('bye'); exit(3)"], ())
    await asyncio.to_thread(os.waitid, os.P_PID, left.pid, os.WEXITED | os.WNOWAIT)
    assert await launcher.adopt(left, said.append).wait() == 3
    assert said == [b"bye"]


async def test_what_cant_be_started_is_unavailable(launcher: Launcher) -> None:
    before = open_files()
    with pytest.raises(Unavailable, match="can't be started"):
        launcher.start(["/nonexistent/program"], lambda line: None)
    assert open_files() == before


async def test_nothing_is_left_open_after_an_end(start: Start) -> None:
    before = open_files()
    for _ in range(5):
        await start("pass").wait()
    assert open_files() == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"
