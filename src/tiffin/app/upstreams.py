"""From a target that somebody else serves to the backend that calls it: address, key, timeouts."""

import ssl
from functools import partial
from math import inf
from urllib.parse import urlsplit

from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.adapters.upstreams.messages import MessagesBackend
from tiffin.config.secrets import read_secret
from tiffin.gateway.placement.place import ClosableBackend
from tiffin.ports.outbox import Outbox
from tiffin.types.profiles import profile_of
from tiffin.types.snapshot import Target


def upstream(target: Target, outbox: Outbox) -> ClosableBackend:
    """The backend of an upstream over TCP, as its profile says; raises `ConfigInvalid`."""
    url = urlsplit(target.url)
    secure = url.scheme == "https"
    profile = profile_of(target.profile)
    headers = b"accept: application/json, text/event-stream\r\n"
    key = read_secret(env=target.key_env, file=target.key_file)
    if key:
        headers += f"{profile.key_header}: {profile.key_prefix}{key}\r\n".encode()
    backend = Http1Backend(
        Endpoint(
            authority=url.netloc.rpartition("@")[2].encode(),
            host=url.hostname or "",
            port=url.port or (443 if secure else 80),
            tls=ssl.create_default_context() if secure else None,
            headers=headers,
            place=partial(
                profile.place,
                below=url.path.rstrip("/"),
                model=target.upstream_model,
                version=target.api_version,
            ),
        ),
        timeouts_of(target),
        resends=False,  # each call that it may charge for is an attempt of its own
        outbox=outbox,
    )
    if profile.protocol == "anthropic":
        return MessagesBackend(backend, backend.close)
    return backend


def timeouts_of(target: Target) -> Timeouts:
    """How long each phase of a call there may take."""
    return Timeouts(
        connect_s=target.connect_timeout_s,
        first_byte_s=target.first_byte_timeout_s,
        between_bytes_s=target.between_bytes_timeout_s,
        total_s=target.total_timeout_s or inf,
    )
