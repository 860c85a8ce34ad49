"""Secrets that a program prints: run without a shell, in bounded time, its words kept nowhere."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tiffin.errors import ConfigInvalid

Command = tuple[str, ...]

LONGEST_S: Final = 10.0
MAX_BYTES: Final = 65_536
AT_ONCE: Final = 32


def output_of(command: Sequence[str], *, within_s: float = LONGEST_S) -> str:
    """What a program prints, without white space around it.

    Raises `ConfigInvalid` where that is nothing, too much, too late, or the program fails. It says
    no more of the program than its path: arguments and output may be secrets.
    """
    program = command[0]
    try:
        # In a session of its own, so that whatever it starts ends with it.
        process = subprocess.Popen(
            [os.path.expanduser(program), *command[1:]],  # noqa: PTH111 - an argument as any other
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "it has a NUL in it"
        raise ConfigInvalid(f"{program} can't be run: {reason}") from None
    with process:
        try:
            content = _read(process, program, time.monotonic() + within_s, within_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise ConfigInvalid(f"{program} failed with exit code {process.returncode}")
    return _secret(content, program)


def outputs_of(commands: Iterable[Command]) -> Mapping[Command, str | ConfigInvalid]:
    """What each of some programs prints, or what is wrong with it; they run side by side."""
    wanted = list(dict.fromkeys(commands))
    if not wanted:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(wanted)), "secrets") as threads:
        return dict(zip(wanted, threads.map(_tried, wanted), strict=True))


def _tried(command: Command) -> str | ConfigInvalid:
    try:
        return output_of(command)
    except ConfigInvalid as failure:
        return failure


def _read(
    process: "subprocess.Popen[bytes]", program: str, deadline: float, within_s: float
) -> bytes:
    """Its output until it has ended; raises `ConfigInvalid`."""
    late = ConfigInvalid(f"{program} took longer than {within_s:g} s")
    assert process.stdout is not None  # noqa: S101 - it was asked for
    fd = process.stdout.fileno()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    content = b""
    while True:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise late
        part = os.read(fd, MAX_BYTES)
        content += part
        if not part:
            break
        if len(content) > MAX_BYTES:
            raise ConfigInvalid(f"{program} printed more than {MAX_BYTES} bytes")
    try:
        process.wait(max(0.01, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise late from None
    return content


def _secret(content: bytes, program: str) -> str:
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        raise ConfigInvalid(f"{program} printed something else than UTF-8") from None
    if not text:
        raise ConfigInvalid(f"{program} printed nothing")
    return text
