"""Control's process: configuration, model files, entries, status. `python -m tiffin.app.control`.

It publishes before it does anything else, and nothing that it publishes needs the database; so a
broken database leaves requests, the admin API and the downloads alone.
"""

import asyncio
import contextlib
import functools
import gc
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from tiffin.adapters.devices.cpu import CpuDevices
from tiffin.adapters.devices.nvidia import NvidiaDevices
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.app.alerting import Alerting
from tiffin.app.boot import EXIT_PERMANENT, Boot, enter, read_boot
from tiffin.app.caches import answer_store
from tiffin.app.calibrating import Calibrating
from tiffin.app.clock import SystemClock
from tiffin.app.money import Money
from tiffin.app.polled_file import PolledFile
from tiffin.app.pulse import beat
from tiffin.app.starter import ensure_key, starter_config
from tiffin.app.tenancy import Tenancy
from tiffin.config.environ import environment
from tiffin.config.load import Loaded
from tiffin.control import fetch
from tiffin.control.applied import ConfigFiles, life_of
from tiffin.control.catalogue.pull import Sources
from tiffin.control.certificates import check_certificates
from tiffin.control.changing import Changing
from tiffin.control.chores import Chore
from tiffin.control.fleet.status import Status
from tiffin.control.history import History
from tiffin.control.ingest import Ingest
from tiffin.control.machine import FILE as MACHINE_FILE
from tiffin.control.machine import MachineWatch
from tiffin.control.observed import Observed, observed
from tiffin.control.office import Office
from tiffin.control.publish import Publisher, Site
from tiffin.control.report import JournalStatus, Report, report
from tiffin.control.standing import limits_page
from tiffin.errors import ConfigInvalid, TiffinError, Unavailable
from tiffin.telemetry import exposition, journal, log
from tiffin.telemetry.metrics import Meter
from tiffin.types.paths import DataFolder, history, sockets
from tiffin.types.whole_file import replace_file

if TYPE_CHECKING:
    from tiffin.api.server import EdgeServer

INGEST_EVERY_S = 0.25
INGEST_IDLE_S = 1.0
PUBLISH_EVERY_S = 5.0
METRICS_EVERY_S = 0.5
LOOK_AROUND_EVERY_S = 5.0
OBSERVE_EVERY_S = 0.25
SECRETS_EVERY_S = 300.0
CERTIFICATES_EVERY_S = 60.0
TRIM_EVERY_S = 30.0
TRIM_ROWS = 5_000
LIVES_EVERY_S = 5.0
FOLD_EVERY_S = 20.0
ENGINES_EVERY_S = 5.0
TENANTS_EVERY_S = 60.0
ALERTS_EVERY_S = 2.0
LAST_ANSWERS_S = 1.0
LAST_INGEST_S = 8.0
DAY_NS = 86_400_000_000_000
NICENESS = 5


class Control:
    """The parts of control, put together from its boot value."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.folder = DataFolder(Path(boot.data))
        self.clock = SystemClock()
        self.meter = Meter("control", boot.epoch)
        self.publisher = Publisher(self.folder.snapshot)
        self.fetching = fetch.Fetching(
            LocalArtifactStore(self.folder.artifacts),
            sources,
            self.clock,
            changed=self._file_came,
            tell=self._tell,
        )
        files = ConfigFiles(
            self.folder,
            given=Path(boot.config_path) if boot.config_path else None,
            server=life_of(boot.parent_pid),
            starter=self._starter,
        )
        cores = len(os.sched_getaffinity(0))
        site = Site(self.folder, cores, epoch=version("tiffin"))
        self.processes = PolledFile(self.folder.run / "status.json", Status)
        self._status: Status | None = None
        self.office = Office(
            files, self.publisher, site, self.fetching, self.clock, look=self._look
        )
        self.tenancy = Tenancy(self.folder, self.office, self.clock)
        self.changing = Changing(
            self.office,
            files,
            History(history(self.folder)),
            self.clock,
            (boot.server, boot.telemetry),
        )
        self.accounts = SqliteAccounts(self.folder.database)
        self.answers = answer_store(self.folder, boot.server.cache)
        self.money = Money(
            self.folder.database, self.office, self.publisher, self.clock, self._running
        )
        self.alerting = Alerting(self.folder, self.office, self.money, self.clock, self.meter)
        self.ingest = Ingest(self.folder.journal, self.accounts, self.meter, self.clock)
        self.collector = exposition.Collector(self.folder.metrics)
        self.waiting = self.meter.gauge("tiffin_journal_bytes", "Bytes of journals on disk")
        self.number = self.meter.gauge("tiffin_snapshot_number", "The published snapshot")
        self.loading = self.meter.gauge(
            "tiffin_model_load_seconds", "Seconds that a model's last load took", ("model", "phase")
        )
        self.failing = self.meter.gauge("tiffin_degraded", "Parts of control that fail", ("part",))
        devices = (CpuDevices(), NvidiaDevices())
        path = self.folder.run / MACHINE_FILE
        self.machine = MachineWatch(devices, path, self.meter, self.clock)
        self.calibrating = Calibrating(self.office, self.publisher, self.clock, self.folder.run)
        self.chores = [
            Chore("admin", self._serve, None),
            Chore("publish", self._publish, PUBLISH_EVERY_S),
            Chore("observe", self._observe, OBSERVE_EVERY_S),
            Chore("secrets", self._renew, 0.0),
            Chore("reload", self._reload, None),
            Chore("certificates", self._check_certificates, CERTIFICATES_EVERY_S),
            Chore("fetch", self.fetching.run, None),
            Chore("ingest", self.ingest.catch_up, INGEST_EVERY_S, INGEST_IDLE_S),
            Chore("trim", self._trim, TRIM_EVERY_S),
            Chore("lives", self._keep_lives, LIVES_EVERY_S),
            Chore("metrics", self._measure, METRICS_EVERY_S),
            Chore("machine", self.machine.look, LOOK_AROUND_EVERY_S),
            Chore("fold", self._fold, FOLD_EVERY_S),
            Chore("engines", self.calibrating.step, ENGINES_EVERY_S),
            Chore("tenants", self.tenancy.changes.tend, TENANTS_EVERY_S),
            Chore("alerts", self.alerting.watch.look, ALERTS_EVERY_S),
            Chore("deliveries", self.alerting.courier.run, None),
        ]
        self.hung_up = asyncio.Event()
        self._server: EdgeServer | None = None

    async def run(self) -> None:
        """Publish, then keep everything going until TERM; raises `ConfigInvalid` at the start."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self.hung_up.set)
        for path in (self.folder.run, self.folder.metrics, self.folder.journal):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.tenancy.open()
        self.alerting.open()
        self.office.open()
        self.changing.opened()
        progress = self.folder.run / f"{self.boot.name}.progress"
        os.nice(NICENESS)
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(beat(progress, lambda: True))
            tasks = [group.create_task(chore.run(), name=chore.name) for chore in self.chores]
            await stopping.wait()
            if self._server is not None:
                self._server.stop()
                await asyncio.wait(tasks[:1], timeout=LAST_ANSWERS_S)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._last_ingest()
            beating.cancel()
        self._measure_now()
        self.machine.close()
        self.meter.close()
        self.accounts.close()
        self.answers.close()
        self.money.close()
        self.alerting.close()

    def report(self) -> Report:
        """Everything that an operator may want to know now."""
        waiting = JournalStatus(
            behind_s=round(self.ingest.behind_s, 3), bytes=journal.total_bytes(self.folder.journal)
        )
        return report(
            self.folder,
            self.office,
            self.publisher.current,
            self.fetching.report.downloads,
            self.chores,
            waiting,
        )

    async def metrics(self) -> tuple[str, str]:
        """The content type and text of all processes' numbers; raises `OSError`."""
        self._measure_now()
        return exposition.CONTENT_TYPE, exposition.render(self.collector.collect())

    async def _serve(self) -> None:
        # Imported only now, when what everybody waits for has been published.
        from tiffin.api.admin import AdminApi, Desk
        from tiffin.api.caches import CachePages
        from tiffin.api.server import EdgeServer
        from tiffin.app.edges import listen, private_edge

        desk = Desk(
            report=self.report,
            config=lambda: self.office.loaded,
            changing=self.changing,
            load=self.office.load,
            unload=self.office.unload,
            restart=self.office.restart,
            limits=lambda: limits_page(self.folder, self.publisher.current),
            metrics=self.metrics,
            accounts=self.accounts,
            gate=self.tenancy.gate(),
            tenancy=self.tenancy.pages(),
            costs=self.money.pages(),
            budgets=self.alerting.pages(),
            caches=CachePages(self.answers, self.clock),
        )
        self._server = EdgeServer(private_edge(AdminApi(desk), self.boot.server))
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        path = sockets(self.folder.run) / f"{self.boot.name}.sock"
        try:
            await self._server.run_on(listen(path))
        finally:
            path.unlink(missing_ok=True)

    async def _publish(self) -> None:
        self.office.refresh()

    async def _observe(self) -> None:
        self.office.observe()

    async def _check_certificates(self) -> None:
        tls, now_s = self.office.config.server.tls, self.clock.now_ns() / 1e9
        if tls.on:
            await asyncio.to_thread(check_certificates, tls, now_s)

    async def _renew(self) -> None:
        await asyncio.sleep(SECRETS_EVERY_S)  # what was read at the start is fresh enough
        await self.changing.renew()

    def _look(self) -> Observed:
        """What runs; nothing while the supervisor hasn't written what it has, but another."""
        self._status = self.processes.changed() or self._status
        status = self._running()
        return observed(status, self.folder.run) if status else Observed()

    def _running(self) -> Status | None:
        """What the supervisor last said."""
        status = self._status
        return status if status and status.pid == self.boot.parent_pid else None

    async def _trim(self) -> None:
        telemetry = self.office.config.telemetry
        gone = TRIM_ROWS
        while gone == TRIM_ROWS:
            gone = await self.accounts.trim(
                before_ns=self.clock.now_ns() - telemetry.account_days * DAY_NS,
                keep=telemetry.max_accounts,
                at_most=TRIM_ROWS,
            )
        await self.money.trim()

    async def _keep_lives(self) -> None:
        await self.money.keep_lives(self.machine.machine)

    async def _measure(self) -> None:
        self._measure_now()

    def _measure_now(self) -> None:
        self.waiting.set(journal.total_bytes(self.folder.journal))
        current = self.publisher.current
        self.number.set(current.number if current else 0)
        for model, took_ms in self.fetching.took_ms.items():
            self.loading.set(took_ms / 1000, (model, "download"))
        for chore in self.chores:
            self.failing.set(bool(chore.fault), (chore.name,))
        self.meter.write(self.folder.metrics / f"control.{self.boot.epoch}.json")

    async def _fold(self) -> None:
        self.collector.collect()

    async def _last_ingest(self) -> None:
        """Take in what the ended gateways wrote; what can't be now, the next start does."""
        try:
            async with asyncio.timeout(LAST_INGEST_S):
                await self.ingest.catch_up()
        except (TimeoutError, TiffinError) as failure:
            log.warning("journals wait for the next start", error=str(failure))

    async def _reload(self) -> None:
        """Read the configuration again whenever somebody hung up."""
        while True:
            await self.hung_up.wait()
            self.hung_up.clear()
            try:
                await self.changing.load_again("a HUP")
            except TiffinError as failure:
                log.error("configuration refused when it was read again", error=str(failure))

    def _file_came(self) -> None:
        # Where it can't be published now, the chore does it soon and says why it can't.
        with contextlib.suppress(Unavailable):
            self.office.refresh()

    def _tell(self, downloads: fetch.Report) -> None:
        with contextlib.suppress(OSError):
            path = self.folder.run / "fetch.json"
            replace_file(path, msgspec.json.encode(downloads), lasting=False)

    def _starter(self) -> Loaded:
        ensure_key(self.folder)
        return starter_config(self.folder)


@functools.cache
def sources() -> Sources:
    """Where model files come from, made when a file is first missing."""
    from tiffin.adapters.sources.registry import default_sources

    return default_sources(environment())


async def serve(boot: Boot) -> int:
    """Run control to its end; its exit code."""
    try:
        await Control(boot).run()
    except ConfigInvalid as failure:
        state = {"phase": "failed", "reason": str(failure)}
        path = DataFolder(Path(boot.data)).run / f"{boot.name}.state.json"
        replace_file(path, msgspec.json.encode(state), lasting=False)
        log.error("control can't start", error=str(failure))
        return EXIT_PERMANENT
    return 0


def main() -> None:
    """Entry of the process."""
    boot = read_boot(sys.argv)
    enter(boot)
    sys.exit(uvloop.run(serve(boot)))


if __name__ == "__main__":
    main()
