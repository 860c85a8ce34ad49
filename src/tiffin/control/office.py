"""Keeps the published snapshot true to the configuration in force and to the files that came."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import msgspec

from tiffin.config.load import Loaded
from tiffin.config.schema import Config, Server, Telemetry
from tiffin.config.secrets import key_hashes, upstream_keys
from tiffin.control.applied import ConfigFiles
from tiffin.control.engines.calibrations import Calibrations
from tiffin.control.fetch import Fetching
from tiffin.control.observed import Observed
from tiffin.control.publish import Keys, Publisher, Site, compose
from tiffin.control.restarted import Restarted
from tiffin.control.unloaded import Unloaded
from tiffin.errors import ConfigInvalid, ModelNotFound, Unavailable
from tiffin.ports.clock import Clock
from tiffin.telemetry import log
from tiffin.types.paths import calibrations, restarted_models

LIVE = frozenset({"server.request_timeout_s", "telemetry.account_days", "telemetry.max_accounts"})
"""Settings of the processes' own sections that take effect without a new start."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What taking a configuration did: which settings changed, by path, under which number.

    `restart` are settings that the running processes don't follow until the next start.
    """

    number: int
    config_hash: str
    changed: list[str]
    restart: list[str]


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was loaded, unloaded or told to start anew, and the snapshot that says so."""

    model: str
    loaded: bool
    number: int


class Office:
    """The configuration in force and what follows from it. Nothing here needs the database.

    `running` is what the processes were started with; `look` tells what runs now.
    """

    def __init__(
        self,
        files: ConfigFiles,
        publisher: Publisher,
        site: Site,
        fetching: Fetching,
        clock: Clock,
        look: Callable[[], Observed] = Observed,
    ) -> None:
        self._files = files
        self._publisher = publisher
        self._site = site
        self._unloaded = Unloaded(site.folder.unloaded)
        self._restarted = Restarted(restarted_models(site.folder))
        self.calibrations = Calibrations(calibrations(site.folder))
        self._calibrated = 0
        self._look = look
        self._observed = Observed()
        self._fetching = fetching
        self._clock = clock
        self._keys: Keys = {}
        self.loaded: Loaded | None = None
        self.fault = ""

    @property
    def config(self) -> Config:
        """The configuration in force; the defaults while none could be loaded."""
        return self.loaded.config if self.loaded else Config()

    @property
    def ready(self) -> frozenset[str]:
        """The names of the replicas that are ready."""
        return self._observed.ready

    @property
    def download_ms(self) -> Mapping[str, int]:
        """How long the files took that came since the start, by model."""
        return self._fetching.took_ms

    def open(self) -> None:
        """Load and publish for the first time.

        Where the configuration can't be used, what was published before stays, and `fault` says
        why; where nothing was, `ConfigInvalid` is raised.
        """
        try:
            self._adopt(self._files.load())
        except ConfigInvalid as failure:
            if self._publisher.current is None:
                raise
            self.fault = f"the configuration can't be used: {failure}"
            log.error("configuration refused, the last snapshot stays", error=str(failure))
        except Unavailable as failure:
            log.error("snapshot not published yet", error=str(failure))

    def apply(self, text: bytes, running: tuple[Server, Telemetry]) -> Applied:
        """Take a configuration that somebody gave, whole or not at all.

        Raises `ConfigInvalid`, or `Unavailable` where it can't be kept, and nothing has changed; or
        `Unavailable` where it can't be published yet, which `refresh` makes good.
        """
        before = self.config
        loaded = self._files.read(text)
        self._fetching.check(loaded.config)
        _keys(loaded.config)
        try:
            self._files.keep(text)
        except OSError as cause:
            raise Unavailable(
                f"the configuration can't be kept: {cause}", retry_after=1.0
            ) from cause
        self._adopt(loaded)
        return self._applied(before, running)

    def load_again(self, running: tuple[Server, Telemetry]) -> Applied:
        """Take anew what the server was started with; raises as `apply` does."""
        before = self.config
        try:
            loaded = self._files.load_again()
            self._fetching.check(loaded.config)
            self._adopt(loaded)
        except ConfigInvalid as failure:
            self.fault = f"the configuration was refused when it was read again: {failure}"
            raise
        return self._applied(before, running)

    def unload(self, model: str, reason: str) -> Switched:
        """End a model's replica, and have it answer nothing until it is loaded again.

        Raises `ModelNotFound`; or `Unavailable` where that can't be kept, and nothing has changed.
        """
        return self._switch(model, lambda: self._unloaded.add(model, reason), loaded=False)

    def load(self, model: str) -> Switched:
        """Have a model run that was unloaded, or that runs already; raises as `unload` does."""
        return self._switch(model, lambda: self._unloaded.remove(model), loaded=True)

    def restart(self, model: str) -> Switched:
        """Have a model's replicas replaced by new ones, without a gap; raises as `unload` does."""
        models = self.config.models
        return self._switch(model, lambda: self._restarted.add(model, models), loaded=True)

    def observe(self) -> None:
        """Publish again where what runs has changed, or the time for something has come.

        Raises `Unavailable` where that can't be.
        """
        current = self._publisher.current
        leaving = current.leaving.values() if current else ()
        due = min(leaving, default=inf) <= self._clock.now_ns()
        measured = self.calibrations.mark() != self._calibrated
        if due or measured or self._look() != self._observed:
            self.refresh()

    def refresh(self) -> None:
        """Publish again where files have come since; raises `Unavailable` where that can't be."""
        if self.loaded is None:
            return
        self._observed = self._look()
        self._calibrated = self.calibrations.mark()
        snapshot = compose(
            self.calibrations.decided(self.loaded),
            self._keys,
            self._fetching.shelf,
            replace(
                self._site,
                observed=self._observed,
                unloaded=self._unloaded.reasons,
                restarts=self._restarted.counts,
            ),
            self._publisher.current,
            self._clock.now_ns(),
        )
        try:
            self._publisher.publish(snapshot)
        except OSError as cause:
            raise Unavailable(f"the snapshot can't be written: {cause}", retry_after=1.0) from cause

    def _switch(self, model: str, keep: Callable[[], None], *, loaded: bool) -> Switched:
        if model not in self.config.models:
            raise ModelNotFound(f"there is no model '{model[:80]}' in the configuration in force")
        try:
            keep()
        except OSError as cause:
            raise Unavailable(f"that can't be kept: {cause}", retry_after=1.0) from cause
        self.refresh()
        current = self._publisher.current
        log.info("model switched", model=model, loaded=loaded)
        return Switched(model=model, loaded=loaded, number=current.number if current else 0)

    def _adopt(self, loaded: Loaded) -> None:
        self._keys = _keys(loaded.config)
        self.loaded = loaded
        self.fault = ""
        self._fetching.want(loaded.config)
        self.refresh()
        log.info("configuration taken", source=loaded.source, sha256=loaded.sha256)

    def _applied(self, before: Config, running: tuple[Server, Telemetry]) -> Applied:
        config = self.config
        started = msgspec.structs.replace(config, server=running[0], telemetry=running[1])
        current = self._publisher.current
        return Applied(
            number=current.number if current else 0,
            config_hash=self.loaded.sha256 if self.loaded else "",
            changed=list(changed(msgspec.to_builtins(before), msgspec.to_builtins(config))),
            restart=[
                path
                for path in changed(msgspec.to_builtins(started), msgspec.to_builtins(config))
                if path not in LIVE
            ],
        )


def _keys(config: Config) -> Keys:
    """The hashes of all keys; raises `ConfigInvalid` where one, or an upstream's, can't be read."""
    upstream_keys(config)
    return key_hashes(config)


def changed(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """The paths of the settings in which two trees differ; what only one has counts as one."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield where
        return
    for name in sorted(before.keys() | after.keys()):
        path = f"{where}.{name}" if where else name
        yield from changed(before.get(name), after.get(name), path)
