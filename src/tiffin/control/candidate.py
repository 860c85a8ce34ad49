"""A configuration that can be taken: everything that it refers to was found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiffin.config.commands import outputs_of
from tiffin.config.load import Loaded
from tiffin.config.schema import Config
from tiffin.config.secrets import alert_keys, commands_of, key_hashes, upstream_keys
from tiffin.config.tls import credentials_of
from tiffin.control.signed import check_signing_keys
from tiffin.control.tenants.published import Keys


@dataclass(frozen=True, slots=True)
class Candidate:
    """`keys` are the hashes of all keys; `upstream` and `alerts` the keys of remote models, and of
    alerts, themselves."""

    loaded: Loaded
    keys: Keys = field(default_factory=dict)
    upstream: Mapping[str, str] = field(default_factory=dict, repr=False)
    alerts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def config(self) -> Config:
        """Its values."""
        return self.loaded.config

    @property
    def asks(self) -> bool:
        """Whether a program has to be asked for something."""
        return bool(commands_of(self.config))


def prepared(loaded: Loaded, *, fresh: bool = True) -> Candidate:
    """Find everything; it may wait for programs. Raises `ConfigInvalid` where something is not.

    One that isn't `fresh` has been in force already: its certificates are the gateways' to see to.
    """
    config = loaded.config
    outputs = outputs_of(commands_of(config))
    upstream = upstream_keys(config, outputs=outputs)
    check_signing_keys(config, upstream)
    keys = key_hashes(config, outputs=outputs)
    alerts = alert_keys(config, outputs=outputs)
    if fresh and config.server.tls.on:
        credentials_of(config.server.tls)
    return Candidate(loaded, keys, upstream, alerts)
