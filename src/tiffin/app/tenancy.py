"""Who may use an installation, as control has it: the registry, its file, the audit log."""

from typing import TYPE_CHECKING

from tiffin.control.audit.log import AuditLog
from tiffin.control.office import Office
from tiffin.control.tenants.changes import Changes
from tiffin.control.tenants.ring_file import RingFile
from tiffin.ports.clock import Clock
from tiffin.types.paths import DataFolder, audit_file, audit_head, keyring_file

if TYPE_CHECKING:
    from tiffin.api.gate import Gate
    from tiffin.api.tenancy import TenancyPages


class Tenancy:
    """Everything that the admin API needs of tenants, keys and the audit log."""

    def __init__(self, folder: DataFolder, office: Office, clock: Clock) -> None:
        self._office = office
        self._ring = RingFile(keyring_file(folder))
        self.audit = AuditLog(audit_file(folder), audit_head(folder), clock)
        self.changes = Changes(office.registry, self._ring, self.audit, clock, office.refresh)

    def open(self) -> None:
        """Read what was made before; where that can't be, `changes.tend` says so."""
        for line in self._ring.load():
            self._office.registry.apply(line)

    def pages(self) -> "TenancyPages":
        """The pages of the admin API."""
        # Imported only now, when what everybody waits for has been published.
        from tiffin.api.tenancy import TenancyPages
        from tiffin.control.tenants.book import Book
        from tiffin.control.tenants.keys import Keys

        book = Book(self.changes, lambda: self._office.config)
        keys = Keys(self.changes, book, lambda: self._office.config)
        return TenancyPages(book, keys, self.audit)

    def gate(self) -> "Gate":
        """What all exchanges with the admin API pass."""
        from tiffin.api.gate import Gate

        return Gate(self.audit, self._config_hash)

    def _config_hash(self) -> str:
        loaded = self._office.loaded
        return loaded.sha256 if loaded else ""
