"""Which configuration, which data folder, which server a command is about."""

import contextlib
from pathlib import Path

import msgspec

from tiffin.app.starter import configuration, folder_of
from tiffin.cli.connect import Address
from tiffin.config.environ import environment
from tiffin.config.load import Loaded, load
from tiffin.config.schema import Config
from tiffin.control.fleet.status import Status
from tiffin.types.json_file import read_json
from tiffin.types.paths import DataFolder, certificate, sockets

HERE = Path("tiffin.toml")
CA_VARIABLE = "TIFFIN_CA"
CERT_VARIABLE = "TIFFIN_CERT"


def config_path(given: Path | None) -> Path | None:
    """The file that was named, else ./tiffin.toml where there is one, else none (the starter)."""
    if given is not None:
        return given
    return HERE if HERE.exists() else None


def configured(given: Path | None, data: Path | None = None) -> Loaded:
    """The configuration that `tiffin serve` would use; raises `ConfigInvalid`.

    Without a file that is what `tiffin apply` gave last, and without that the starter's.
    """
    path = config_path(given)
    named = DataFolder(data.absolute()) if data else None
    if path is None:
        applied = (named or folder_of(load(None).config)).applied
        path = applied if applied.exists() else None
    return configuration(path, named)


def folder(config: Config, data: Path | None) -> DataFolder:
    """The data folder: the one that was named, else the configured one."""
    return DataFolder(data.absolute()) if data else folder_of(config)


def server(*, url: str, key: str, data: Path | None) -> Address:
    """The public port: what was named, else the server of the data folder, else the configured one.

    The key is the one that was given, else the one in the data folder.
    """
    if url and key:
        return _address(url, key)
    config = configured(None, data).config
    here = folder(config, data)
    if not key:
        with contextlib.suppress(OSError):
            key = here.key.read_text().strip()
    if url:
        return _address(url, key)
    return _address(running_at(here) or configured_url(config), key, here)


def control(*, url: str, key: str, data: Path | None) -> Address:
    """The admin API: through the public port where one was named, else control's own socket."""
    if url:
        return server(url=url, key=key, data=data)
    here = folder(configured(None, data).config, data)
    return Address(socket=str(sockets(here.run) / "control.sock"))


def _address(url: str, key: str, here: DataFolder | None = None) -> Address:
    """A public port; that of this data folder is known by the certificate that it left there."""
    environ = environment()
    ca, cert = environ.get(CA_VARIABLE, ""), environ.get(CERT_VARIABLE, "")
    left = certificate(here) if here and not ca else None
    shown = str(left) if left and left.exists() else ""
    return Address(url=url, key=key, shown=shown, ca=ca, cert=cert)


def running(here: DataFolder) -> Status | None:
    """What the supervisor of a data folder says, or None where none lives."""
    try:
        status = read_json(here.run / "status.json", Status)
    except (OSError, msgspec.MsgspecError):
        return None
    return status if Path(f"/proc/{status.pid}").exists() else None


def running_at(here: DataFolder) -> str:
    """The address of the server that runs on a data folder, empty where none is known."""
    status = running(here)
    return status.address if status else ""


def configured_url(config: Config) -> str:
    """The address at which a server with this configuration can be reached from this machine."""
    host = config.server.host
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    named = f"[{reachable}]" if ":" in reachable else reachable
    return f"{config.server.tls.scheme}://{named}:{config.server.port}"
