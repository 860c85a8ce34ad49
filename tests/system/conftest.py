import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.server import Server

ECHO = """
[models.echo]
runtime = "echo"
slots = 2
"""

Serve = Callable[..., Server]


@pytest.fixture(scope="session", autouse=True)
def _hang_ups_are_heard() -> None:
    """Under `nohup` every server would ignore its SIGHUP too; a handler isn't inherited."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Serve]:
    """Makes a server of some models (TOML, `[models.…]`) that isn't started yet; ends them all."""
    servers: list[Server] = []

    def make_server(models: str = ECHO) -> Server:
        folder = tmp_path / f"server-{len(servers)}"
        folder.mkdir()
        servers.append(Server(folder, models))
        return servers[-1]

    yield make_server
    for server in servers:
        server.close()


@pytest.fixture
def serve(make_server: Serve) -> Serve:
    """Starts a server of some models and waits until its gateway answers."""
    return lambda models=ECHO: make_server(models).start()
