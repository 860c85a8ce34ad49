"""A data folder with a configuration file, and the office that control would have over it."""

from pathlib import Path

from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.config.load import load_tree
from tiffin.config.schema import Server, Telemetry
from tiffin.control.applied import ConfigFiles
from tiffin.control.candidate import prepared
from tiffin.control.changing import Applied, Changing
from tiffin.control.fetch import Fetching
from tiffin.control.history import History
from tiffin.control.observed import Observed
from tiffin.control.office import Office
from tiffin.control.publish import Publisher, Site
from tiffin.testing.clock import FakeClock
from tiffin.types.paths import DataFolder, history

ONE = b"[models.one]\nruntime = 'echo'\n"
TWO = b"[models.two]\nruntime = 'echo'\n[server]\nport = 1\nrequest_timeout_s = 9\n"
RUNNING = (Server(), Telemetry())


class Installation:
    """A data folder, and the control that one start of the server has.

    `changing` is that of the office that was made last.
    """

    changing: Changing

    def __init__(self, root: Path) -> None:
        self.folder = DataFolder(root)
        self.folder.run.mkdir(parents=True)
        self.file = root / "tiffin.toml"
        self.file.write_bytes(ONE)
        self.observed = Observed()

    def control(self, *, life: str = "1", given: bool = True) -> Office:
        files = self.files = ConfigFiles(
            self.folder, self.file if given else None, life, lambda: load_tree({}, {})
        )
        clock = FakeClock()
        store = LocalArtifactStore(self.folder.artifacts)
        fetching = Fetching(store, dict, clock, lambda: None, lambda _: None)
        publisher = Publisher(self.folder.snapshot)
        site = Site(self.folder, 4)
        office = Office(files, publisher, site, fetching, clock, look=lambda: self.observed)
        kept = History(history(self.folder))
        self.changing = Changing(office, files, kept, clock, RUNNING)
        return office

    def opened(self, *, life: str = "1", given: bool = True) -> Office:
        office = self.control(life=life, given=given)
        office.open()
        self.changing.opened()
        return office

    def apply(self, text: bytes, by: str = "somebody") -> Applied:
        return self.changing.take(prepared(self.files.read(text)), by)

    def load_again(self) -> Applied:
        return self.changing.take(prepared(self.files.given()), "a HUP", given=True)

    @property
    def published(self) -> list[str]:
        snapshot = Publisher(self.folder.snapshot).current
        return sorted(snapshot.plans) if snapshot else []
