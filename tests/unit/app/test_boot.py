import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tiffin.app.boot import Boot, command, read_boot
from tiffin.config.schema import Server, Telemetry
from tiffin.types.snapshot import Deployment

ENTER = "import sys; from tiffin.app.boot import enter, read_boot; enter(read_boot(sys.argv)); "


def boot(parent_pid: int = 0) -> Boot:
    return Boot(
        role="replica",
        name="r-chat",
        data="/data",
        parent_pid=parent_pid or os.getpid(),
        epoch="ep_1",
        server=Server(port=0),
        telemetry=Telemetry(),
        deployment=Deployment(
            model="chat", revision="sha256:0", socket="/s", spec=msgspec.Raw(b'{"slots":2}')
        ),
    )


def entered(program: str, parent_pid: int = 0) -> subprocess.CompletedProcess[str]:
    argument = command(boot(parent_pid))[-1]
    return subprocess.run(
        [sys.executable, "-c", ENTER + program, argument],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_child_reads_what_the_parent_wrote() -> None:
    argv = command(boot())
    assert argv[:3] == [sys.executable, "-m", "tiffin.app.replica"]
    assert read_boot(argv[2:]) == boot()


@pytest.mark.parametrize("argv", [["x"], ["x", "{}"], ["x", "no"], ["x", "{}", "more"]])
def test_anything_else_is_refused(argv: list[str]) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_boot(argv)


def test_an_entered_process_logs_json_and_makes_private_files(tmp_path: Path) -> None:
    made = tmp_path / "made"
    ended = entered(
        "from tiffin.telemetry import log; log.info('hello', n=1);"
        f"open({str(made)!r}, 'w').close(); raise ValueError('no')"
    )
    assert ended.returncode == 1
    hello, crashed = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (hello["event"], hello["n"], hello["process"]) == ("hello", 1, "r-chat")
    assert (crashed["event"], crashed["error"]) == ("crashed", "ValueError: no")
    assert made.stat().st_mode & 0o777 == 0o600


def test_a_process_whose_parent_has_gone_doesnt_begin() -> None:
    ended = entered("print('began')", parent_pid=1)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "is gone" in ended.stderr


def test_a_process_ends_with_its_parent() -> None:
    parent = (
        "import os, subprocess, sys, msgspec; from pathlib import Path\n"
        "from tiffin.app.boot import Boot; import tiffin.config.schema as c\n"
        "boot = Boot(role='x', name='x', data='/', parent_pid=os.getpid(), epoch='e',"
        " server=c.Server(), telemetry=c.Telemetry())\n"
        f"program = {ENTER!r} + 'print(1, flush=True); import time; time.sleep(60)'\n"
        "argv = [sys.executable, '-c', program, msgspec.json.encode(boot).decode()]\n"
        "child = subprocess.Popen(argv, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, timeout=30, check=False
    )
    assert ended.returncode == -9
    deadline = time.monotonic() + 10
    while Path(f"/proc/{int(ended.stdout)}/exe").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
