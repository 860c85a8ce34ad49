"""The engine's process: started with its flags, waited for, ended; its last words are kept."""

import asyncio
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tiffin.adapters.runtimes.launch_table import PROFILES, Profile
from tiffin.adapters.runtimes.named_files import NamedFiles
from tiffin.config.models import LaunchedModel
from tiffin.errors import LoadFailed, TiffinError, Unavailable
from tiffin.ports.launcher import Child, Launcher
from tiffin.telemetry import log

LAST_WORDS: Final = 3
MAX_WORD: Final = 300
FIRST_LOOK_S: Final = 0.05
LATER_LOOK_S: Final = 1.0
END_S: Final = 10.0
NOT_FOUND: Final = 127  # as shells have it


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens: a unix socket's `path`, or a `port` of this machine and a `key`."""

    path: str = ""
    port: int = 0
    key: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """What the engine is started with beside its settings.

    Its `model`, by name or folder, or the `files` that are laid out in one `beside`; what it is to
    call it; where it may listen; what makes a command one that dies with us; how many threads it
    may compute with (0: any).
    """

    model: str
    name: str
    socket: Path
    tether: Callable[[list[str]], list[str]]
    beside: Path
    files: Mapping[str, Path] = field(default_factory=dict)
    threads: int = 0


class EngineChild:
    """One start of one engine."""

    def __init__(self, spec: LaunchedModel, place: Place, launcher: Launcher) -> None:
        self._spec = spec
        self._place = place
        self._launcher = launcher
        self._profile: Profile = PROFILES[spec.engine]
        self._child: Child | None = None
        self._named: NamedFiles | None = None
        self._words: deque[str] = deque(maxlen=LAST_WORDS)
        self._ending = False
        self.address = self._address()

    @property
    def fault(self) -> str:
        """Why it isn't running although it should; empty while all is well."""
        child = self._child
        if child is None or self._ending or child.pulse() is not None:
            return ""
        return self._obituary("ended by itself")

    async def start(self) -> None:
        """Start it; raises `LoadFailed` where that can't be."""
        place = self._place
        place.socket.unlink(missing_ok=True)
        if place.files:
            self._named = await asyncio.to_thread(NamedFiles, place.files, place.beside)
            place = replace(place, model=str(self._named.folder))
        argv, variables = arguments(self._spec, place, self.address)
        pairs = [f"{name}={value}" for name, value in variables.items()]
        try:
            # `env` and the tether give way to what they start, so a key isn't seen in lists.
            command = ["env", *pairs, *place.tether(argv)]
            self._child = self._launcher.start(command, self._heard)
        except TiffinError as error:
            raise LoadFailed(f"the engine can't be started: {error.message}") from error

    async def wait_for(self, healthy: Callable[[], Awaitable[bool]], within_s: float) -> None:
        """Return when it says that it is healthy; raises `LoadFailed` where it ends before."""
        child = self._child
        if child is None:
            raise LoadFailed("the engine wasn't started")
        gone = asyncio.ensure_future(child.wait())
        pause_s = FIRST_LOOK_S
        try:
            async with asyncio.timeout(within_s):
                while not await healthy():
                    await asyncio.wait({gone}, timeout=pause_s)
                    if gone.done():
                        raise self._failed(gone.result())
                    pause_s = min(2 * pause_s, LATER_LOOK_S)
        except TimeoutError:
            why = Unavailable("it may be healthy another time")
            raise LoadFailed(self._obituary(f"isn't healthy after {within_s:.0f} s")) from why
        finally:
            gone.cancel()

    async def stop(self) -> None:
        """Ask it to end, kill it and all that it started after a while; idempotent."""
        self._ending = True
        child, self._child = self._child, None
        if child is not None:
            await child.stop(END_S)
        if self._named is not None:
            self._named.close()
        self._place.socket.unlink(missing_ok=True)

    def _address(self) -> Address:
        if self._profile.by_socket:
            return Address(path=str(self._place.socket))
        return Address(port=_free_port(), key=secrets.token_hex(24))

    def _heard(self, line: bytes) -> None:
        # What it prints may hold anything: the log takes personal data out, and for the reason of
        # a failure a few lines are enough.
        word = line.decode("utf-8", "replace").strip()
        if word:
            self._words.append(word[:MAX_WORD])
            log.info("the engine says", engine=self._spec.engine, said=word[:MAX_WORD])

    def _failed(self, code: int) -> LoadFailed:
        """Its end before it was healthy, which may be due to what it lacked at that moment."""
        error = LoadFailed(self._obituary(f"ended with code {code}"))
        if code != NOT_FOUND:
            error.__cause__ = Unavailable("it may start another time")
        return error

    def _obituary(self, what: str) -> str:
        said = " | ".join(self._words)
        return f"{self._spec.engine} {what}" + (f"; its last words: {said}" if said else "")


def arguments(
    spec: LaunchedModel, place: Place, address: Address
) -> tuple[list[str], Mapping[str, str]]:
    """What starts the engine: its argument vector, and variables beside its environment."""
    profile = PROFILES[spec.engine]
    words = {
        "model": place.model,
        "name": place.name,
        "context": str(spec.context),
        "slots": str(spec.slots),
        "tensor_parallel": str(spec.tensor_parallel),
        "socket": address.path or str(place.socket),
        "port": str(address.port),
        "key": address.key,
    }
    argv = [_filled(word, words) for word in (*profile.argv, *spec.args)]
    if spec.executable:
        argv = [spec.executable, *(argv[1:] if profile.argv else argv)]
    variables = {name: _filled(value, words) for name, value in profile.variables.items()}
    if place.threads:
        variables["OMP_NUM_THREADS"] = str(place.threads)
    return argv, variables


def _filled(text: str, words: Mapping[str, str]) -> str:
    """`text` with its placeholders filled in; other braces, as of JSON, stay."""
    for name, value in words.items():
        text = text.replace("{" + name + "}", value)
    return text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
