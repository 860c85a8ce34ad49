"""`tiffin serve`: from a configuration to a running supervisor and a screen that shows it."""

from pathlib import Path

import msgspec

from tiffin.app.handover import take
from tiffin.app.masters import masters
from tiffin.app.options import Options
from tiffin.app.starter import ensure_key
from tiffin.app.supervisor import run
from tiffin.cli.locate import config_path, configured, folder
from tiffin.cli.screen import Welcome, screen
from tiffin.config.models import files_of
from tiffin.config.schema import Config
from tiffin.config.tls import credentials_of
from tiffin.control.catalogue.abilities import serves
from tiffin.errors import Conflict
from tiffin.types.paths import DataFolder, vault


def serve_here(
    given: Path | None, *, host: str, port: int | None, data: Path | None, handover: int = -1
) -> None:
    """Serve on this machine until TERM or INT; raises `ConfigInvalid` and `Conflict`.

    `handover` is the descriptor of what the program left that this process was before.
    """
    taken, lost = None, ""
    if handover >= 0:
        try:
            taken = take(handover)
        except Conflict as failure:
            lost = failure.message
    path = config_path(given)
    config = configured(given, data).config
    here = folder(config, data)
    server = config.server
    if host:
        server = msgspec.structs.replace(server, host=host)
    if port is not None:
        server = msgspec.structs.replace(server, port=port)
    if server.tls.on and handover < 0:
        credentials_of(server.tls)  # a gateway would only find out later
    if server.vault.given and handover < 0:
        masters(vault(here), server.vault)
    welcome = Welcome(key=_key(config, here), model=_first_model(config))
    options = Options(
        data=here.root,
        server=server,
        telemetry=config.telemetry,
        config_path=str(path.absolute()) if path else "",
        taken=taken,
        lost=lost,
    )
    run(options, screen(welcome))


def _key(config: Config, here: DataFolder) -> str:
    """The key to show: the data folder's own where the configuration uses it, else none."""
    keys = [key for tenant in config.tenants.values() for key in tenant.keys.values()]
    files = [Path(key.key_file).expanduser() for key in keys if key.key_file]
    return ensure_key(here) if here.key in files else ""


def _first_model(config: Config) -> str:
    """The model that will chat first: the one with the smallest file."""
    sizes = {
        name: sum(file.size_bytes for file in files_of(model).values())
        for name, model in config.models.items()
        if "chat" in serves(model)
    }
    return min(sizes, key=lambda name: sizes[name], default="chat-tiny")
