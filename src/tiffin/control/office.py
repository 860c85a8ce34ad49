"""Keeps the published snapshot true to the configuration in force and to the files that came."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf

import msgspec

from tiffin.config.load import Loaded
from tiffin.config.schema import Config
from tiffin.control.applied import ConfigFiles
from tiffin.control.candidate import Candidate, prepared
from tiffin.control.engines.calibrations import Calibrations
from tiffin.control.fetch import Fetching
from tiffin.control.key_files import KeyFile, KeyFiles
from tiffin.control.observed import Observed
from tiffin.control.publish import Publisher, Site, compose
from tiffin.control.restarted import Restarted
from tiffin.control.tenants.clashes import check_clashes
from tiffin.control.tenants.registry import Registry
from tiffin.control.unloaded import Unloaded
from tiffin.errors import ConfigInvalid, ModelNotFound, Unavailable
from tiffin.ports.clock import Clock
from tiffin.telemetry import log
from tiffin.types.paths import calibrations, restarted_models
from tiffin.types.snapshot import Snapshot


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was loaded, unloaded or told to start anew, and the snapshot that says so."""

    model: str
    loaded: bool
    number: int


class Office:
    """The configuration in force and what follows from it. Nothing here needs the database.

    `look` tells what runs now; `taken` is what is in force, with what it refers to.
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
        self.registry = Registry()
        self._key_files = KeyFiles(site.folder.run)
        self.taken: Candidate | None = None
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
            self._adopt(prepared(self._files.load(), fresh=False))
        except ConfigInvalid as failure:
            if self._publisher.current is None:
                raise
            self.fault = f"the configuration can't be used: {failure}"
            log.error("configuration refused, the last snapshot stays", error=str(failure))
        except Unavailable as failure:
            log.error("snapshot not published yet", error=str(failure))

    def adopt(self, candidate: Candidate) -> int:
        """Have this in force from now on; the number of the snapshot that says so.

        Raises `ConfigInvalid` where files can't be had from where it says, `Unavailable` where it
        can't be published, and nothing has changed.
        """
        self._fetching.check(candidate.config)
        before, fault = self.taken, self.fault
        try:
            self._adopt(candidate)
        except BaseException:
            self._back_to(before, fault)
            raise
        current = self._publisher.current
        return current.number if current else 0

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
        if self.taken is None:
            return
        self._observed = self._look()
        self._calibrated = self.calibrations.mark()
        try:
            self._key_files.put(self.taken.config, self.taken.upstream)
        except OSError as cause:
            raise Unavailable(f"a key can't be kept: {cause}", retry_after=1.0) from cause
        key_files = self._key_files.seen(self.taken.config)
        snapshot = self._composed(self.taken, self._publisher.current, key_files)
        try:
            self._publisher.publish(snapshot)
        except OSError as cause:
            raise Unavailable(f"the snapshot can't be written: {cause}", retry_after=1.0) from cause

    def outlook(self, candidate: Candidate) -> Snapshot:
        """What would be published at once if nothing had been before, without keys.

        Raises `ConfigInvalid` where files can't be had from where it says, and where it says what
        the admin API has made.
        """
        self._fetching.check(candidate.config)
        check_clashes(candidate.config, candidate.keys, self.registry)
        return self._composed(replace(candidate, keys={}), None, {})

    def _composed(
        self, candidate: Candidate, previous: Snapshot | None, key_files: Mapping[str, KeyFile]
    ) -> Snapshot:
        site = replace(
            self._site,
            observed=self._observed,
            unloaded=self._unloaded.reasons,
            restarts=self._restarted.counts,
            made=self.registry.made(),
            key_files=key_files,
        )
        return compose(
            self.calibrations.decided(candidate.loaded),
            candidate.keys,
            self._fetching.shelf,
            site,
            previous,
            self._clock.now_ns(),
        )

    def _back_to(self, before: Candidate | None, fault: str) -> None:
        self.taken, self.loaded, self.fault = before, before.loaded if before else None, fault
        if before is not None:
            self._fetching.want(before.config)
            with suppress(OSError):
                self._key_files.put(before.config, before.upstream)

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

    def _adopt(self, candidate: Candidate) -> None:
        check_clashes(candidate.config, candidate.keys, self.registry)
        self.taken, self.loaded, self.fault = candidate, candidate.loaded, ""
        self._fetching.want(candidate.config)
        self.refresh()
        loaded = candidate.loaded
        log.info("configuration taken", source=loaded.source, sha256=loaded.sha256)
