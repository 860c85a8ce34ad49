"""TLS on the public port, by real clients: who is let in, renewed certificates, what is refused."""

import os
import signal
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest

from tests.certificates import Authority, Signed
from tests.system.conftest import Serve
from tests.system.server import BREATH_S, KEY, TIFFIN, Server, body, until

ECHO = '\n[models.m]\nruntime = "echo"\nslots = 16\n'
WORDS = "one and two and three and four"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def section(signed: Signed, more: str = "") -> str:
    return (
        f'\n[server.tls]\ncertificate = "{signed.certificate}"\nkey_file = "{signed.key}"\n{more}\n'
    )


def required(clients: Authority) -> str:
    return f'client = "required"\nclient_ca = "{clients.path}"'


def client_of(
    authority: Authority, server: Server | None = None, own: Signed | None = None
) -> httpx.Client:
    """A client that trusts this authority, and has a certificate of its own where one is given."""
    context = ssl.create_default_context(cafile=str(authority.path))
    if own is not None:
        context.load_cert_chain(own.both)
    at = server.status().address if server else ""
    key = {"authorization": f"Bearer {KEY}"}
    return httpx.Client(verify=context, base_url=at, headers=key, timeout=20.0)


def started(
    make_server: Serve, authority: Authority, text: str, own: Signed | None = None
) -> Server:
    server: Server = make_server(ECHO + text)
    server.http = client_of(authority, own=own)
    server.start().until_answers("m")
    until(lambda: server.http.get("/admin/v1/status").status_code == 200)
    return server


def tiffin(*words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(TIFFIN), *words],
        env=os.environ | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def shown_by(server: Server) -> str:
    """The certificate that a new connection is shown."""
    at = httpx.URL(server.status().address)
    return ssl.get_server_certificate((at.host, at.port or 0), timeout=10)


@contextmanager
def traffic(
    server: Server, authority: Authority, own: Signed | None = None
) -> Iterator[Counter[str]]:
    """What clients get that ask all the time, on connections that they keep and on new ones."""
    answers: Counter[str] = Counter()
    over = threading.Event()
    lock = threading.Lock()

    def ask(kept: bool) -> None:
        client = client_of(authority, server, own)
        while not over.wait(BREATH_S):
            if not kept:
                client.close()
                client = client_of(authority, server, own)
            try:
                reply = client.post("/v1/chat/completions", json=body("m", WORDS, stream=True))
                told = "ok" if reply.text.endswith("data: [DONE]\n\n") else reply.text[-200:]
            except httpx.TransportError as failure:
                told = repr(failure)
            with lock:
                answers[told] += 1
        client.close()

    threads = [threading.Thread(target=ask, args=(kept,)) for kept in (True, True, False)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: answers.total() > 10)
        yield answers
        count = answers.total()
        until(lambda: answers.total() > count + 10)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_openai_clients_and_the_terminal_talk_over_tls(
    make_server: Serve, authority: Authority
) -> None:
    server = started(make_server, authority, section(authority.sign("server")))
    assert server.status().address.startswith("https://")
    trust = ssl.create_default_context(cafile=str(authority.path))
    with openai.DefaultHttpxClient(verify=trust) as http:
        client = openai.OpenAI(
            base_url=f"{server.status().address}/v1", api_key=KEY, http_client=http
        )
        whole = client.chat.completions.create(**body("m", WORDS))
        assert whole.choices[0].message.content == WORDS
        pieces = client.chat.completions.create(**body("m", WORDS), stream=True)
        said = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        assert said == WORDS

    here = ("--model", "m", "hello there", "--key", KEY)
    data = ("--data", str(server.folder.root))
    assert tiffin("chat", *here, *data).stdout == "hello there\n"
    assert f"Tiffin at {server.status().address}" in tiffin("status", *data).stdout

    elsewhere = ("chat", *here, "--url", server.status().address)
    assert tiffin("--ca", str(authority.path), *elsewhere).stdout == "hello there\n"
    assert tiffin(*elsewhere, TIFFIN_CA=str(authority.path)).stdout == "hello there\n"
    distrusted = tiffin(*elsewhere)
    assert distrusted.returncode == 3
    assert "tiffin --ca FILE" in distrusted.stderr


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_protocols_and_plain_http_are_turned_away(
    make_server: Serve, authority: Authority
) -> None:
    server = started(make_server, authority, section(authority.sign("server")))
    at = httpx.URL(server.status().address)
    context = ssl.create_default_context(cafile=str(authority.path))
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(httpx.ConnectError):
        httpx.get(at.join("/livez"), verify=context)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(str(at.join("/livez")).replace("https", "http"))


def test_only_clients_with_a_certificate_of_the_authority_are_let_in(
    make_server: Serve, authority: Authority, tmp_path: Path
) -> None:
    clients = Authority(tmp_path, "clients")
    own = clients.sign("alice")
    text = section(authority.sign("server"), required(clients))
    server = started(make_server, authority, text, own)
    for stranger in (None, authority.sign("mallory")):
        with client_of(authority, server, stranger) as http, pytest.raises(httpx.TransportError):
            http.get("/livez")

    words = ("chat", "--model", "m", "hello", "--key", KEY, "--data", str(server.folder.root))
    refused = tiffin(*words)
    assert refused.returncode == 3
    assert "tiffin --cert FILE" in refused.stderr
    assert tiffin("--cert", str(own.both), *words).stdout == "hello\n"


def test_a_renewed_certificate_is_shown_and_nobody_loses_an_answer(
    make_server: Serve, authority: Authority
) -> None:
    signed = authority.sign("server")
    server = started(make_server, authority, section(signed))
    with traffic(server, authority) as answers:
        for _ in range(3):
            authority.renew(signed)
            fresh = ssl.PEM_cert_to_DER_cert(signed.certificate.read_text())
            until(lambda fresh=fresh: ssl.PEM_cert_to_DER_cert(shown_by(server)) == fresh)  # type: ignore[misc]
    assert answers.keys() == {"ok"}, answers
    words = ("chat", "--model", "m", "hello", "--key", KEY, "--data", str(server.folder.root))
    assert tiffin(*words).stdout == "hello\n", "the terminal knows the new one"

    before = shown_by(server)
    signed.key.write_text("nothing")
    until(lambda: "certificates refused" in server.explain())
    assert shown_by(server) == before, "the one that can be used is shown on"
    authority.renew(signed)
    until(lambda: shown_by(server) != before)


def test_who_is_let_in_changes_with_the_authority(
    make_server: Serve, authority: Authority, tmp_path: Path
) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    alice, bob = old.sign("alice"), new.sign("bob")
    server = started(
        make_server, authority, section(authority.sign("server"), required(old)), alice
    )
    kept = client_of(authority, server, alice)
    assert kept.get("/livez").status_code == 200
    fresh = tmp_path / "fresh.pem"
    fresh.write_bytes(new.path.read_bytes())
    fresh.replace(old.path)

    def bob_is_let_in() -> bool:
        with client_of(authority, server, bob) as http:
            try:
                return http.get("/livez").status_code == 200
            except httpx.TransportError:
                return False

    until(bob_is_let_in)
    assert kept.get("/livez").headers["connection"] == "close", "one more answer, and the last"
    with pytest.raises(httpx.TransportError):
        kept.get("/livez")


def test_an_applied_certificate_is_shown_at_once_and_one_that_cannot_be_read_is_refused(
    make_server: Serve, authority: Authority
) -> None:
    first, second = authority.sign("first"), authority.sign("second")
    server = started(make_server, authority, section(first))
    text = server.config.read_text()
    spoilt = text.replace(str(first.certificate), "/no/such.crt")
    refused = server.http.post("/admin/v1/config", content=spoilt)
    assert (refused.status_code, refused.json()["error"]["param"]) == (
        400,
        "server.tls.certificate",
    )
    assert "No such file" in refused.json()["error"]["message"]

    for path in ("crt", "key"):
        text = text.replace(f"first.{path}", f"second.{path}")
    applied = server.http.post("/admin/v1/config", content=text).raise_for_status().json()
    assert applied["restart"] == []
    until(lambda: shown_by(server).strip() == second.certificate.read_text().strip())

    server.config.write_text(text.replace("second", "first"))
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    until(lambda: shown_by(server).strip() == first.certificate.read_text().strip())


def test_upgrades_keep_tls(make_server: Serve, authority: Authority, tmp_path: Path) -> None:
    clients = Authority(tmp_path, "clients")
    own = clients.sign("alice")
    text = section(authority.sign("server"), required(clients))
    server = started(make_server, authority, text, own)
    with traffic(server, authority, own) as answers:
        done = tiffin("upgrade", "--data", str(server.folder.root))
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{server.explain()}"
    assert answers.keys() == {"ok"}, answers
    with client_of(authority, server) as stranger, pytest.raises(httpx.TransportError):
        stranger.get("/livez")


def test_no_start_without_a_certificate_that_can_be_read(
    make_server: Serve, authority: Authority
) -> None:
    signed = authority.sign("server")
    signed.key.unlink()
    server = make_server(ECHO + section(signed))
    process = server.spawn()
    assert process.wait(30) == 1
    said = server.output.read_text()
    assert "server.tls.key_file" in said
    assert "No such file" in said
