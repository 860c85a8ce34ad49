"""Which configuration is in force: the file that the server was given, or what was applied to it.

What `tiffin apply` gives is kept in the data folder. It is in force for as long as the server that
it was given to lives, and where a server is started without a file, until the next one is applied.
A server that is started with a file, or told to read it again, takes that file.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from tiffin.config.load import Loaded, load, load_text
from tiffin.errors import ConfigInvalid
from tiffin.types.paths import DataFolder, one_before
from tiffin.types.whole_file import replace_file

APPLIED = "applied"


class ConfigFiles:
    """Where the configuration comes from. `given` is the server's file, or None.

    `server` identifies the life of the server that this control belongs to; `starter` gives the
    configuration where there is no file at all. Every method raises `ConfigInvalid` or `OSError`.
    """

    def __init__(
        self, folder: DataFolder, given: Path | None, server: str, starter: Callable[[], Loaded]
    ) -> None:
        self._folder = folder
        self._given = given
        self._server = server
        self._starter = starter
        self._note = _note(folder)

    def load(self) -> Loaded:
        """The configuration in force."""
        path = in_force(self._folder, self._given, self._server)
        return load(path) if path else self._starter()

    def given(self) -> Loaded:
        """What the server was given when it was started, read anew; changes nothing."""
        return load(self._given) if self._given else self.load()

    def read(self, text: bytes | None) -> Loaded:
        """What a text would come to; changes nothing. Without one it is the starter's."""
        if text is not None:
            return load_text(text, source=APPLIED)
        if self._given is not None:
            raise ConfigInvalid(f"the starter's isn't for a server that was given {self._given}")
        return self._starter()

    def keep(self, text: bytes | None) -> Callable[[], None]:
        """Make a text what is in force from now on, without one the starter's.

        What is given back undoes that; it needs no room on the disk.
        """
        applied, before = self._folder.applied, one_before(self._folder.applied)
        had = applied.exists()
        noted = _applied_to(self._folder, self._server)
        if had:
            _keep_too(applied, before)

        def undo() -> None:
            with contextlib.suppress(OSError):
                before.replace(applied) if had else applied.unlink(missing_ok=True)
                if not noted:
                    self._note.unlink(missing_ok=True)

        try:
            self._put(text)
        except OSError:
            undo()
            raise
        return undo

    def keep_given(self) -> None:
        """Make what the server was given what is in force from now on."""
        if self._given is not None:
            self._note.unlink(missing_ok=True)

    def _put(self, text: bytes | None) -> None:
        if text is None:
            self._folder.applied.unlink(missing_ok=True)
            return
        replace_file(self._folder.applied, text)
        replace_file(self._note, self._server.encode())


def in_force(folder: DataFolder, given: Path | None, server: str) -> Path | None:
    """The file of the configuration in force; None is the starter's. Raises `OSError`."""
    if folder.applied.exists() and (given is None or _applied_to(folder, server)):
        return folder.applied
    return given


def _keep_too(path: Path, other: Path) -> None:
    """Have what a file has under another name too, without needing room where that can be."""
    other.unlink(missing_ok=True)
    try:
        other.hardlink_to(path)
    except OSError:  # a file system without links
        replace_file(other, path.read_bytes())


def _note(folder: DataFolder) -> Path:
    return folder.run / "applied.for"


def _applied_to(folder: DataFolder, server: str) -> bool:
    try:
        return _note(folder).read_bytes() == server.encode()
    except FileNotFoundError:
        return False


def life_of(pid: int) -> str:
    """What tells this life of a process from another with the same number: when it began."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return f"{pid}:{stat.rpartition(')')[2].split()[19]}:{_boot_id()}"
    except (OSError, IndexError):
        return f"{pid}:{os.getpid()}"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
