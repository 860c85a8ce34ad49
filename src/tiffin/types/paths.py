"""Where everything lies in one installation's data folder: the only place that knows its names."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

MAX_SOCKET_BYTES = 107
_LONGEST_NAME_BYTES = 56

OWN_FILES = ".files"
"""The suffix of the folder in which a replica lays out its model's files, beside its socket."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Paths below one data folder; making none of them."""

    root: Path

    @property
    def key(self) -> Path:
        """The starter's API key, mode 0600."""
        return self.root / "key"

    @property
    def database(self) -> Path:
        """Control's SQLite database."""
        return self.root / "tiffin.db"

    @property
    def snapshot(self) -> Path:
        """The published snapshot."""
        return self.root / "snapshot.json"

    @property
    def applied(self) -> Path:
        """The configuration that `tiffin apply` gave last, as it was given."""
        return self.root / "applied.toml"

    @property
    def unloaded(self) -> Path:
        """The models that an operator unloaded, with the reasons."""
        return self.root / "unloaded.json"

    @property
    def supervisor_lock(self) -> Path:
        """Locked while a supervisor runs; holds its pid."""
        return self.root / "supervisor.lock"

    @property
    def artifacts(self) -> Path:
        """The content-addressed store."""
        return self.root / "artifacts"

    @property
    def journal(self) -> Path:
        """Account journals, one epoch a process life."""
        return self.root / "journal"

    @property
    def logs(self) -> Path:
        """Rotated JSON logs."""
        return self.root / "logs"

    @property
    def metrics(self) -> Path:
        """Cumulative counters, one file a process."""
        return self.root / "metrics"

    @property
    def run(self) -> Path:
        """Sockets and state of running processes."""
        return self.root / "run"

    def replica_socket(self, name: str) -> Path:
        """The unix socket of a replica by its name; its sibling files share the stem."""
        return sockets(self.run) / f"{name}.sock"


def one_before(path: Path) -> Path:
    """Where the content that a file had before is kept."""
    return path.with_suffix(f".previous{path.suffix}")


def certificate(folder: DataFolder) -> Path:
    """The certificates that the public port shows now, in PEM."""
    return folder.run / "certificate.pem"


def history(folder: DataFolder) -> Path:
    """The configurations that were in force, as they were given."""
    return folder.root / "history"


def measured_file(folder: DataFolder) -> Path:
    """What replicas were measured to take, by generation."""
    return folder.root / "measured.json"


def restarted_models(folder: DataFolder) -> Path:
    """How often models were told to start anew."""
    return folder.root / "restarted.json"


def calibrations(folder: DataFolder) -> Path:
    """What was measured of engines, a file for each revision and machine."""
    return folder.root / "calibrations"


def keyring_file(folder: DataFolder) -> Path:
    """The tenants, projects and keys that were made through the admin API."""
    return folder.root / "keyring.jsonl"


def audit_file(folder: DataFolder) -> Path:
    """One line for each change that somebody made as an admin."""
    return folder.root / "audit.jsonl"


def audit_head(folder: DataFolder) -> Path:
    """Where the audit log ends, beside it."""
    return folder.root / "audit.head.json"


def vault(folder: DataFolder) -> Path:
    """The tenants' keys for stored content, and the master key where none is configured."""
    return folder.root / "vault"


def idempotency_keys(folder: DataFolder) -> Path:
    """The log of idempotency keys and their answers."""
    return folder.root / "idempotency"


def answer_cache(folder: DataFolder) -> Path:
    """Answers that may be given again."""
    return folder.root / "cache.db"


def responses(folder: DataFolder) -> Path:
    """Responses that several gateways share, sealed."""
    return folder.root / "responses.db"


def spent(folder: DataFolder) -> Path:
    """What gateways charged to limits by the calendar, a file each."""
    return folder.root / "spent"


def standing_limits(folder: DataFolder, gateway: str) -> Path:
    """How the limits stand that a gateway met, by the gateway's name."""
    return folder.run / f"{gateway}.limits.json"


def odd_keys(folder: DataFolder, gateway: str) -> Path:
    """Whose requests a gateway finds odd, by the gateway's name."""
    return folder.run / f"{gateway}.odd.json"


def left_alone(folder: DataFolder, gateway: str) -> Path:
    """Which upstreams a gateway leaves alone for now, by the gateway's name."""
    return folder.root / f"{gateway}.upstreams.json"


def alerts_file(folder: DataFolder) -> Path:
    """What is still to be told by alerts, and what was."""
    return folder.root / "alerts.json"


def imported_files(folder: DataFolder, model: str) -> Path:
    """What `tiffin models import` made of a model, beside the store that has it too."""
    return folder.root / "imported" / model


def replica_name(model: str, generation: str, ordinal: int) -> str:
    """A short file-safe name of a replica: its model, the start of its generation, its number."""
    return f"r-{re.sub(r'[^A-Za-z0-9_-]', '_', model)[:29]}-{generation[:8]}-{ordinal}"


def replica_of(socket: str) -> str:
    """The name of the replica that listens at a socket."""
    return Path(socket).stem


def sockets(run: Path) -> Path:
    """The run folder by a path that is short enough for every socket in it.

    A longer one is reached through a symbolic link, which the supervisor makes and guards.
    """
    if len(os.fsencode(run)) + _LONGEST_NAME_BYTES <= MAX_SOCKET_BYTES:
        return run
    digest = hashlib.sha256(os.fsencode(run)).hexdigest()[:16]
    return Path("/tmp") / f"tiffin-{os.getuid()}-{digest}"  # noqa: S108 - verified by its maker
