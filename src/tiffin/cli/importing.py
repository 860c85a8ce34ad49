"""`tiffin models import`: from a file of yours to a served model, in one command."""

import hashlib
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tiffin.adapters.importers.order import Imported, Order
from tiffin.adapters.importers.registry import bring
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.cli import locate, template
from tiffin.cli.applying import applied, text_of
from tiffin.cli.connect import Refused, Unreachable
from tiffin.cli.scratch import working_folder
from tiffin.cli.section import section, undisturbed, with_section, write_whole
from tiffin.cli.trying import curl
from tiffin.config.load import load_text
from tiffin.config.models import File
from tiffin.config.shape import NAME
from tiffin.errors import ArtifactUnavailable, ConfigInvalid
from tiffin.ports.artifacts import Artifact
from tiffin.types.paths import DataFolder, imported_files

CHUNK_BYTES = 1 << 20
READY_WITHIN_S = 60.0
POLL_S = 0.2
TEMPLATE_KEY = 'key_file = "~/.tiffin/key"'


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks: the model's `name`, the configuration, what to do after.

    `apply` None means: where the running server has this configuration.
    """

    name: str
    kind: str = ""
    config: Path | None = None
    data: Path | None = None
    replace: bool = False
    apply: bool | None = None


def import_model(order: Order, wish: Wish) -> Iterator[str]:
    """Do it, and tell it line by line; raises `TiffinError` with nothing changed."""
    if not NAME.fullmatch(wish.name):
        raise ConfigInvalid(
            "names have letters, digits, '.', '_', '-', no more than 64 of them", where="--name"
        )
    target = _Target(wish)
    with_section(target.text, wish.name, "", replace=wish.replace)  # a conflict, before the work
    with working_folder(target.folder) as scratch:
        found = bring(_in(order, scratch), wish.kind)
        yield f"{order.path}: {found.what}"
        yield from (f"  {note}" for note in found.notes)
        files = _kept(found, scratch, target.folder, wish.name)
    remark = f"{found.what}, from {order.path.absolute()}."
    new = section(wish.name, found.runtime, found.settings, files, found.decision, remark)
    with undisturbed(target.path):
        target = _Target(wish)  # what others wrote while this worked stays
        text = with_section(target.text, wish.name, new, replace=wish.replace)
        load_text(text.encode(), source=str(target.path))
        write_whole(target.path, text)
    yield f"wrote [models.{wish.name}] into {target.path}"
    yield from _apply(target, wish)
    yield ""
    yield "Try it:"
    yield curl(wish.name, found, target.address(), target.folder.key)


def _in(order: Order, scratch: Path) -> Order:
    return Order(
        path=order.path.absolute(),
        scratch=scratch,
        trusted=order.trusted,
        sample=order.sample,
        features=order.features,
        labels=order.labels,
        threshold=order.threshold,
    )


class _Target:
    """The configuration that gets the section, as it was, and the server that may run with it."""

    def __init__(self, wish: Wish) -> None:
        self.path = (wish.config or locate.HERE).absolute()
        self._data = wish.data
        if self.path.exists():
            self.text = _read(self.path)
            loaded = load_text(self.text.encode(), source=str(self.path))
            self.folder = locate.folder(loaded.config, wish.data)
        else:
            loaded = locate.configured(None, wish.data)
            self.folder = locate.folder(loaded.config, wish.data)
            self.text = _first(self.folder)
            loaded = load_text(self.text.encode(), source=str(self.path))
        self._before = loaded.tree

    def address(self) -> str:
        """The public address of the server of this data folder, or what it will be."""
        return locate.running_at(self.folder) or locate.configured_url(
            load_text(self.text.encode()).config
        )

    def in_force(self) -> bool:
        """Whether the server has this configuration as it was; raises `Unreachable`.

        The server's own section may differ: `tiffin serve --port` and the environment change it.
        """
        theirs = self._control().call("GET", "/admin/v1/config")["config"]
        ours = msgspec.to_builtins(self._before)
        return bool(theirs | {"server": None} == ours | {"server": None})

    def apply(self) -> str:
        """Give the file to the server; what that did."""
        return "\n".join(applied(self._control(), text_of(self.path)))

    def state(self, name: str) -> tuple[str, str]:
        """The model's state in the server, and its reason."""
        report = self._control().call("GET", "/admin/v1/status")
        found = [one for one in report["models"] if one["name"] == name]
        return (found[0]["state"], found[0]["reason"]) if found else ("", "")

    def _control(self) -> Any:
        return locate.control(url="", key="", data=self.folder.root)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigInvalid(f"can't be read: {cause}", where=str(path)) from cause


def _first(folder: DataFolder) -> str:
    """A configuration where there is no file: what was applied last, else the starter's."""
    if folder.applied.exists():
        return _read(folder.applied)
    return template.text().replace(TEMPLATE_KEY, f'key_file = "{folder.key}"')


def _kept(found: Imported, scratch: Path, folder: DataFolder, name: str) -> dict[str, File]:
    """The files in the store, each with a source that stays: the original, or what was made."""
    store = LocalArtifactStore(folder.artifacts)
    kept = {}
    for known_as, path in found.files.items():
        source = path.resolve()
        if source.is_relative_to(scratch.resolve()):
            source = imported_files(folder, name) / known_as
            _copy(path, source)
        kept[known_as] = _stored(store, name, source)
    return kept


def _copy(path: Path, to: Path) -> None:
    try:
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = to.with_name(f".{to.name}.new")
        shutil.copyfile(path, fresh)
        fresh.replace(to)
    except OSError as cause:
        raise ArtifactUnavailable(f"{to} can't be written: {cause.strerror}") from cause


def _stored(store: LocalArtifactStore, name: str, path: Path) -> File:
    """Copied, not linked: whoever writes to the original later must not change what is served."""
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
            uri = f"file:{path}"
            artifact = Artifact(model=name, sha256=sha256, size_bytes=size, sources=(uri,))
            stop = threading.Event()
            with store.claim(artifact, stop):
                if store.find(sha256) is None:
                    file.seek(0)
                    with store.landing(artifact, uri, lambda *_: None, stop) as landing:
                        landing.restart()
                        landing.expect(size, last=True)
                        while chunk := file.read(CHUNK_BYTES):
                            landing.write(chunk)
                    store.accept(artifact, uri)
    except OSError as cause:
        raise ArtifactUnavailable(f"{path} can't be read: {cause.strerror}") from cause
    return File(sources=[uri], sha256=sha256, size_bytes=size)


def _apply(target: _Target, wish: Wish) -> Iterator[str]:
    """Give it to the server that runs with this configuration, and wait until it serves."""
    if wish.apply is False:
        yield f"not applied; tiffin apply {target.path}"
        return
    try:
        if wish.apply is None and not target.in_force():
            yield (
                "the running server has another configuration, so this one isn't applied;"
                f" tiffin apply {target.path} would replace it"
            )
            return
        yield target.apply()
        yield _ready(target, wish.name)
    except Unreachable:
        if wish.apply:
            raise
        yield f"no server runs on {target.folder.root}; tiffin serve starts one"


def _ready(target: _Target, name: str) -> str:
    deadline = time.monotonic() + READY_WITHIN_S
    state, reason = "", ""
    while time.monotonic() < deadline:
        state, reason = target.state(name)
        if state == "ready":
            return f"{name} is ready"
        if state == "failed":
            raise Refused(500, f"{name} was applied and can't be loaded: {reason}")
        time.sleep(POLL_S)
    return f"{name} is still {state or 'unknown'}; tiffin status tells when it is ready"


def two_labels(text: str) -> tuple[str, str]:
    """The names of no and yes; raises `ConfigInvalid`."""
    labels = [label.strip() for label in text.split(",")]
    if len(labels) != 2 or not all(labels):
        raise ConfigInvalid('expected two names, as "ok,fraud"', where="--labels")
    return labels[0], labels[1]
