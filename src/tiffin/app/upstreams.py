"""From a target that somebody else serves to the backend that calls it: address, key, timeouts."""

import ssl
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final
from urllib.parse import urlsplit

from tiffin.adapters.upstreams.authorised import AuthorisedBackend
from tiffin.adapters.upstreams.aws import AwsSigner
from tiffin.adapters.upstreams.endpoint import Endpoint, Timeouts
from tiffin.adapters.upstreams.google import WITHIN_S, google_signer
from tiffin.adapters.upstreams.http1 import Http1Backend
from tiffin.adapters.upstreams.messages import MessagesBackend
from tiffin.adapters.upstreams.sagemaker import SageMakerBackend
from tiffin.config.environ import environment
from tiffin.config.secrets import read_secret, usual_secret
from tiffin.dialects.aws.credentials import read_credentials
from tiffin.dialects.google.credentials import is_file, read_account
from tiffin.errors import ConfigInvalid
from tiffin.gateway.placement.place import ClosableBackend
from tiffin.ports.outbox import Outbox
from tiffin.ports.signer import Signer
from tiffin.types.profiles import Profile, profile_of
from tiffin.types.snapshot import Target

TOKENS: Final = Timeouts(connect_s=5.0, first_byte_s=WITHIN_S, between_bytes_s=WITHIN_S)


def upstream(target: Target, outbox: Outbox) -> ClosableBackend:
    """The backend of an upstream over TCP, as its profile says; raises `ConfigInvalid`."""
    profile = profile_of(target.profile)
    key = read_secret(env=target.key_env, file=target.key_file) or usual_secret(profile.signs)
    signs = profile.signs == "aws" or (profile.signs == "google" and is_file(key))
    endpoint = _endpoint(target, profile, "" if signs else key)
    backend: ClosableBackend = Http1Backend(
        endpoint,
        timeouts_of(target),
        resends=False,  # each call that it may charge for is an attempt of its own
        outbox=outbox,
    )
    if signs:
        signer = _signer(target, profile, endpoint, key)
        backend = AuthorisedBackend(backend, signer, backend.close)
    if profile.protocol == "anthropic":
        return MessagesBackend(backend, backend.close)
    if profile.protocol == "sagemaker":
        return SageMakerBackend(backend, backend.close)
    return backend


def _endpoint(target: Target, profile: Profile, key: str) -> Endpoint:
    headers = b"accept: application/json, text/event-stream\r\n"
    if "\r" in key or "\n" in key:
        raise ConfigInvalid("the key has more than one line")
    if key:
        headers += f"{profile.key_header}: {profile.key_prefix}{key}\r\n".encode()
    place = partial(
        profile.place,
        below=urlsplit(target.url).path.rstrip("/"),
        model=target.upstream_model,
        version=target.api_version,
    )
    return replace(_host(target.url), headers=headers, place=place)


def _host(address: str) -> Endpoint:
    """Where an address leads, its path aside."""
    url = urlsplit(address)
    secure = url.scheme == "https"
    return Endpoint(
        authority=url.netloc.rpartition("@")[2].encode(),
        host=url.hostname or "",
        port=url.port or (443 if secure else 80),
        tls=ssl.create_default_context() if secure else None,
    )


def _signer(target: Target, profile: Profile, endpoint: Endpoint, key: str) -> Signer:
    """What authorises calls there."""
    if profile.signs == "google":
        account = read_account(key, target.egress)
        tokens = Http1Backend(_host(account.token_url), TOKENS, max_idle=1)
        return google_signer(account, tokens, tokens.close)
    region = next(iter(profile.regions(target.url)), target.region)
    credentials = read_credentials(key, environment())
    return AwsSigner(endpoint, credentials, region=region, service=profile.service)


def timeouts_of(target: Target) -> Timeouts:
    """How long each phase of a call there may take."""
    return Timeouts(
        connect_s=target.connect_timeout_s,
        first_byte_s=target.first_byte_timeout_s,
        between_bytes_s=target.between_bytes_timeout_s,
        total_s=target.total_timeout_s or inf,
        least_bytes_per_s=target.min_bytes_per_s,
    )
