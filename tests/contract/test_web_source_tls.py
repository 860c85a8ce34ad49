"""Downloads over TLS: certificates are checked, and the machine's proxy is used."""

import datetime
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.contract.artifact_servers import FileServer, Reply, serving
from tiffin.adapters.sources.web import WebSource
from tiffin.adapters.stores.artifacts import free_bytes
from tiffin.adapters.stores.landing import PartialFile
from tiffin.errors import ArtifactError, Draining

CONTENT = os.urandom(300_000)
SOURCE = WebSource(backoff_s=0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key and its own certificate for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def server(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A TLS server with CONTENT at /w, whose certificate this process trusts."""
    for name in ("https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with serving(FileServer(files={"/w": CONTENT}), tls) as running:
        yield running


@contextmanager
def landing(folder: Path) -> Iterator[PartialFile]:
    """A landing in the folder, closed at the end."""
    opened = PartialFile(
        folder,
        size_bytes=0,
        free_bytes=free_bytes,
        stop=threading.Event(),
        report=lambda _: None,
    )
    with closing(opened):
        yield opened


@contextmanager
def proxy(heads: list[bytes]) -> Iterator[str]:
    """A CONNECT proxy on loopback; `heads` gets what clients ask of it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def relay(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            client, _ = listener.accept()
            with client:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                heads.append(head)
                host, _, port = head.split()[1].decode().partition(":")
                with socket.create_connection((host, int(port))) as target:
                    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    back = threading.Thread(target=relay, args=(target, client))
                    back.start()
                    relay(client, target)
                    back.join()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_trusted_server_is_downloaded_from(server: FileServer, tmp_path: Path) -> None:
    server.replies.append(Reply(cut_after=1000))
    with landing(tmp_path) as here:
        SOURCE.fetch(f"{server.address}/w", here)
    assert (tmp_path / "content").read_bytes() == CONTENT


def test_an_untrusted_server_is_not(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    with landing(tmp_path) as here, pytest.raises(ArtifactError, match="certificate verify failed"):
        SOURCE.fetch(f"{server.address}/w", here)
    assert server.asked == []


def test_stopping_doesn_t_wait_for_a_server_that_hangs(server: FileServer, tmp_path: Path) -> None:
    server.replies.append(Reply(pause_after=1000))
    with landing(tmp_path) as here, ThreadPoolExecutor() as threads:
        fetching = threads.submit(SOURCE.fetch, f"{server.address}/w", here)
        assert server.paused.wait(30)
        here.stop.set()
        with pytest.raises(Draining):
            fetching.result(10)


@pytest.mark.parametrize("scheme", ["", "http://", "http://me:p%40ss@"])
def test_the_machine_s_proxy_is_used(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    heads: list[bytes] = []
    with proxy(heads) as address, landing(tmp_path) as here:
        monkeypatch.setenv("https_proxy", f"{scheme}{address}")
        SOURCE.fetch(f"{server.address}/w", here)
    assert (tmp_path / "content").read_bytes() == CONTENT
    assert heads[0].startswith(f"CONNECT {server.address.removeprefix('https://')} ".encode())
    login = b"proxy-authorization: Basic bWU6cEBzcw=="
    assert (login in heads[0]) == ("me" in scheme)


def test_a_host_that_is_exempt_is_reached_without_the_proxy(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "localhost")
    with landing(tmp_path) as here:
        SOURCE.fetch(f"{server.address}/w", here)
    assert (tmp_path / "content").read_bytes() == CONTENT
