"""Downloads over HTTP from servers that misbehave."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.artifact_servers import FileServer, Reply, serving
from tiffin.adapters.sources.hub import HubSource
from tiffin.adapters.sources.web import MAX_REDIRECTS, WebSource
from tiffin.adapters.stores.artifacts import free_bytes
from tiffin.adapters.stores.landing import PartialFile
from tiffin.errors import ArtifactError, Draining

CONTENT = os.urandom(300_000)
SOURCE = WebSource(backoff_s=0)


@pytest.fixture
def server() -> Iterator[FileServer]:
    """A server with CONTENT at /w."""
    with serving(FileServer(files={"/w": CONTENT})) as running:
        yield running


@contextmanager
def landing(folder: Path, size_bytes: int = 0) -> Iterator[PartialFile]:
    """A landing in the folder, closed at the end."""
    opened = PartialFile(
        folder,
        size_bytes=size_bytes,
        free_bytes=free_bytes,
        stop=threading.Event(),
        report=lambda _: None,
    )
    with closing(opened):
        yield opened


def fetched(server: FileServer, folder: Path, source: WebSource = SOURCE) -> bytes:
    """What a download brings."""
    with landing(folder) as here:
        source.fetch(f"{server.address}/w", here)
    return (folder / "content").read_bytes()


def ranges(server: FileServer) -> list[str]:
    """The ranges asked for, in order; empty where none was."""
    return [asked.headers.get("range", "") for asked in server.gets("/w")]


def test_a_reply_that_breaks_off_goes_on_where_it_was(server: FileServer, tmp_path: Path) -> None:
    server.replies.extend([Reply(cut_after=100_000), Reply(cut_after=50_000)])
    assert fetched(server, tmp_path) == CONTENT
    assert ranges(server) == ["", "bytes=100000-", "bytes=150000-"]


def test_another_version_in_between_starts_over(server: FileServer, tmp_path: Path) -> None:
    server.replies.append(Reply(cut_after=100_000, etag='"older"'))
    assert fetched(server, tmp_path) == CONTENT
    assert server.gets("/w")[1].headers["if-range"] == '"older"'


@pytest.mark.parametrize("etag", ["", 'W/"weak"'], ids=["none", "weak"])
def test_without_a_strong_etag_the_date_validates(
    server: FileServer, tmp_path: Path, etag: str
) -> None:
    server.replies.extend([Reply(cut_after=1000, etag=etag), Reply(etag=etag)])
    assert fetched(server, tmp_path) == CONTENT
    assert "2026" in server.gets("/w")[1].headers["if-range"]


def test_a_server_without_ranges_sends_it_all_again(server: FileServer, tmp_path: Path) -> None:
    server.replies.extend([Reply(cut_after=1000), Reply(ignore_range=True)])
    assert fetched(server, tmp_path) == CONTENT


def test_another_range_than_asked_is_not_believed(server: FileServer, tmp_path: Path) -> None:
    server.replies.extend([Reply(cut_after=1000), Reply(shift_range=7)])
    assert fetched(server, tmp_path) == CONTENT


def test_a_file_that_was_whole_already_is_not_sent_again(
    server: FileServer, tmp_path: Path
) -> None:
    fetched(server, tmp_path)
    assert fetched(server, tmp_path) == CONTENT
    assert ranges(server) == ["", "bytes=300000-"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_trouble_is_tried_again(server: FileServer, tmp_path: Path, status: int) -> None:
    server.replies.extend([Reply(status=status)] * 3)
    assert fetched(server, tmp_path) == CONTENT


def test_it_gives_up_after_as_many_fruitless_tries(server: FileServer, tmp_path: Path) -> None:
    server.replies.extend([Reply(status=503)] * 9)
    with pytest.raises(ArtifactError, match="503"):
        fetched(server, tmp_path)
    assert len(server.gets("/w")) == 4


def test_a_server_that_never_gets_further_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.replies.extend([Reply(cut_after=1000, ignore_range=True)] * 50)
    with pytest.raises(ArtifactError, match="broke off after 1000 of 300000"):
        fetched(server, tmp_path)
    assert len(server.gets("/w")) == 5


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_is_final(server: FileServer, tmp_path: Path, status: int) -> None:
    server.replies.append(Reply(status=status))
    with pytest.raises(ArtifactError, match=str(status)):
        fetched(server, tmp_path)
    assert len(server.gets("/w")) == 1


def test_a_compressed_reply_is_refused(server: FileServer, tmp_path: Path) -> None:
    server.replies.append(Reply(encoding="gzip"))
    with pytest.raises(ArtifactError, match="compressed"):
        fetched(server, tmp_path)


def test_a_body_without_a_length_ends_with_the_connection(
    server: FileServer, tmp_path: Path
) -> None:
    server.replies.append(Reply(length=False))
    assert fetched(server, tmp_path) == CONTENT


def test_a_body_that_is_longer_than_declared_is_cut_off(server: FileServer, tmp_path: Path) -> None:
    server.replies.append(Reply(length=False, extra=b"x" * 10_000_000))
    with landing(tmp_path, size_bytes=len(CONTENT)) as here:
        with pytest.raises(ArtifactError, match="longer"):
            SOURCE.fetch(f"{server.address}/w", here)
        assert here.offset <= len(CONTENT)


def test_redirects_are_followed_relative_and_only_so_far(
    server: FileServer, tmp_path: Path
) -> None:
    steps = [f"/r{number}" for number in range(MAX_REDIRECTS)]
    server.redirects = dict(zip(steps, [*steps[1:], "w"], strict=True))
    with landing(tmp_path) as here:
        SOURCE.fetch(f"{server.address}/r0", here)
    assert (tmp_path / "content").read_bytes() == CONTENT
    server.redirects["/w"] = "/r0"
    with landing(tmp_path / "b") as here, pytest.raises(ArtifactError, match="more than 5"):
        SOURCE.fetch(f"{server.address}/r0", here)


@pytest.mark.parametrize(
    "target", ["http://example.org/w", "ftp://127.0.0.1/w", "file:///etc/passwd", "//[", "http://"]
)
def test_a_redirect_to_what_is_not_https_is_refused(
    server: FileServer, tmp_path: Path, target: str
) -> None:
    server.redirects["/r"] = target
    with landing(tmp_path) as here, pytest.raises(ArtifactError, match="redirects"):
        SOURCE.fetch(f"{server.address}/r", here)


def test_a_token_goes_to_its_own_host_alone(server: FileServer, tmp_path: Path) -> None:
    hub = FileServer(
        redirects={
            "/old/name/resolve/main/w": "/new/name/resolve/main/w",
            "/new/name/resolve/main/w": f"{server.address}/w",
        }
    )
    with serving(hub), landing(tmp_path) as here:
        HubSource(SOURCE, base=hub.address, token="secret").fetch("hf:old/name/w", here)
    assert [one.headers.get("authorization") for one in hub.asked] == ["Bearer secret"] * 2
    assert "authorization" not in server.asked[0].headers


def test_stopping_doesn_t_wait_for_a_server_that_hangs(server: FileServer, tmp_path: Path) -> None:
    server.replies.append(Reply(pause_after=1000))
    with landing(tmp_path) as here, ThreadPoolExecutor() as threads:
        fetching = threads.submit(SOURCE.fetch, f"{server.address}/w", here)
        assert server.paused.wait(30)
        here.stop.set()
        with pytest.raises(Draining):
            fetching.result(10)
    assert not server.go_on.is_set()


def test_a_server_that_hangs_is_left_after_the_time_limit(
    server: FileServer, tmp_path: Path
) -> None:
    server.replies.append(Reply(pause_after=1000))
    source = WebSource(backoff_s=0, timeout_s=0.2)
    assert fetched(server, tmp_path, source) == CONTENT
    assert ranges(server) == ["", "bytes=1000-"]


def test_nobody_there_is_a_reason(tmp_path: Path) -> None:
    with serving(FileServer()) as gone:
        pass
    with pytest.raises(ArtifactError, match="refused"):
        fetched(gone, tmp_path)


replies = st.builds(
    Reply,
    status=st.sampled_from([0, 0, 0, 206, 416, 200, 500, 503]),
    cut_after=st.none() | st.integers(0, len(CONTENT)),
    ignore_range=st.booleans(),
    shift_range=st.sampled_from([0, 0, 0, -1, 1, 5000]),
    etag=st.sampled_from([None, None, "", '"other"', 'W/"weak"']),
    length=st.booleans(),
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plan=st.lists(replies, max_size=6), known=st.booleans())
def test_whatever_the_server_does_it_ends_and_a_later_good_reply_mends_it(
    tmp_path_factory: pytest.TempPathFactory, plan: list[Reply], known: bool
) -> None:
    folder = tmp_path_factory.mktemp("landing")
    with serving(FileServer(files={"/w": CONTENT})) as server:
        server.replies.extend(plan)
        size = len(CONTENT) if known else 0
        with suppress(ArtifactError), landing(folder, size) as here:
            SOURCE.fetch(f"{server.address}/w", here)
        assert len(server.gets("/w")) <= 30
        server.replies.clear()
        with landing(folder, size) as here:
            SOURCE.fetch(f"{server.address}/w", here)
        assert (folder / "content").read_bytes() == CONTENT
