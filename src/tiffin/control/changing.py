"""Configurations that somebody gives: looked at, taken whole or not at all, and taken back."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from tiffin.config.load import Loaded
from tiffin.config.schema import Config, Server, Telemetry
from tiffin.control.applied import ConfigFiles
from tiffin.control.candidate import Candidate, prepared
from tiffin.control.differences import compared
from tiffin.control.history import Earlier, History
from tiffin.control.office import Office
from tiffin.control.preview import Preview, models_of, moves
from tiffin.errors import ConfigInvalid, Unavailable
from tiffin.ports.clock import Clock
from tiffin.telemetry import log

LIVE = frozenset({"server.request_timeout_s", "telemetry.account_days", "telemetry.max_accounts"})
"""Settings of the processes' own sections that take effect without a new start."""

LIVE_TLS = frozenset(
    f"server.tls.{name}"
    for name in ("certificate", "key_file", "key_env", "key_command", "client_ca")
)
"""Those that do where there was TLS before, and still is."""

AT_START = "the start of the server"

Running = tuple[Server, Telemetry]
"""What the processes were started with."""


Wanted = bytes | int
"""A configuration: its text, or the number of one that was in force (0: the one before what is)."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What taking a configuration did: which settings changed, by path, under which number.

    `restart` are settings that the running processes don't follow until the next start.
    """

    number: int
    config_hash: str
    changed: list[str]
    restart: list[str]


class Changing:
    """The way to the office's configuration. What may take long is done in a thread."""

    def __init__(
        self, office: Office, files: ConfigFiles, history: History, clock: Clock, running: Running
    ) -> None:
        self._office = office
        self._files = files
        self._history = history
        self._clock = clock
        self._running = running
        self._turn = asyncio.Lock()

    def opened(self) -> None:
        """Remember what is in force since the start."""
        if self._office.loaded is not None:
            with suppress(OSError):  # a full disk; what is in force is known all the same
                self._history.add(self._office.loaded, AT_START, self._clock.now_ns())

    async def apply(self, wanted: Wanted, by: str) -> Applied:
        """Take one, for whom it is; raises `ConfigInvalid` and as `take` does."""
        async with self._turn:
            return self.take(await asyncio.to_thread(prepared, self._found(wanted)), by)

    async def load_again(self, by: str) -> Applied:
        """Take anew what the server was started with; raises as `apply` does."""
        async with self._turn:
            try:
                candidate = await asyncio.to_thread(prepared, self._files.given())
                return self.take(candidate, by, given=True)
            except ConfigInvalid as failure:
                reason = f"the configuration was refused when it was read again: {failure}"
                self._office.fault = reason
                raise

    async def preview(self, wanted: Wanted) -> Preview:
        """What taking one would do; raises `ConfigInvalid` where it can't be taken."""
        loaded = self._found(wanted)
        candidate = await asyncio.to_thread(prepared, loaded)
        taken = self._office.taken
        runs = models_of(self._office.outlook(taken)) if taken else {}
        would = models_of(self._office.outlook(candidate))
        before, after = taken.config if taken else Config(), candidate.config
        # Many keys have many settings.
        found, bounds = await asyncio.to_thread(compared, before, after)
        return Preview(
            config_hash=loaded.sha256,
            changes=found,
            models=list(moves(runs, would)),
            tighter=bounds,
            restart=only_at_start(after, self._running),
        )

    def history(self) -> list[Earlier]:
        """Those that were in force, the newest first."""
        kept = self._history.kept()
        return [
            Earlier(
                number=one.number,
                at_ns=one.at_ns,
                by=one.by,
                source=one.source,
                sha256=one.sha256,
                in_force=one is kept[0],
            )
            for one in kept
        ]

    def take(self, candidate: Candidate, by: str, *, given: bool = False) -> Applied:
        """Take a configuration, whole or not at all: whatever is raised, nothing has changed.

        `given` is what the server was started with. Raises `ConfigInvalid`, or `Unavailable` where
        it can't be kept or published.
        """
        before = self._office.config
        with ExitStack() as undo:
            try:
                if not given:
                    undo.callback(self._files.keep(candidate.loaded.text))
                undo.callback(self._history.add(candidate.loaded, by, self._clock.now_ns()))
            except OSError as cause:
                reason = f"the configuration can't be kept: {cause}"
                raise Unavailable(reason, retry_after=1.0) from cause
            number = self._office.adopt(candidate)
            undo.pop_all()
        if given:
            self._files.keep_given()
        after = candidate.config
        return Applied(
            number=number,
            config_hash=candidate.loaded.sha256,
            changed=list(changed(msgspec.to_builtins(before), msgspec.to_builtins(after))),
            restart=only_at_start(after, self._running),
        )

    async def renew(self) -> int:
        """Read anew what the configuration in force refers to, where a program has to be asked.

        Raises `ConfigInvalid` where that can't be had now: what was had before stays.
        """
        taken = self._office.taken
        if taken is None or not taken.asks:
            return 0
        async with self._turn:
            fresh = await asyncio.to_thread(prepared, taken.loaded, fresh=False)
            if fresh != taken and self._office.taken is taken:
                self._office.adopt(fresh)
                log.info("secrets renewed")
        return 1

    def _found(self, wanted: Wanted) -> Loaded:
        if isinstance(wanted, bytes):
            return self._files.read(wanted)
        loaded = self._office.loaded
        kept = self._history.find(wanted, loaded.sha256 if loaded else "")
        return self._files.read(None if kept.toml is None else kept.toml.encode())


def only_at_start(config: Config, running: Running) -> list[str]:
    """The settings that running processes don't follow until the next start."""
    server, telemetry = running
    live = LIVE | LIVE_TLS if server.tls.on and config.server.tls.on else LIVE
    pairs = (("server", server, config.server), ("telemetry", telemetry, config.telemetry))
    return [
        path
        for name, was, now in pairs
        for path in changed(msgspec.to_builtins(was), msgspec.to_builtins(now), name)
        if path not in live
    ]


def changed(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """The paths of the settings in which two trees differ; what only one has counts as one."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield where
        return
    for name in sorted(before.keys() | after.keys()):
        path = f"{where}.{name}" if where else name
        yield from changed(before.get(name), after.get(name), path)
