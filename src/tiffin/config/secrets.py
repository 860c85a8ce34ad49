"""Secrets by reference: read where they are used, compared by hash, never kept in our values."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tiffin.config.alerts import Alert
from tiffin.config.commands import Command, output_of, outputs_of
from tiffin.config.environ import environment
from tiffin.config.remote import RemoteModel, UpstreamKey
from tiffin.config.schema import Config, Key
from tiffin.errors import ConfigInvalid

Outputs = Mapping[Command, str | ConfigInvalid]
Section = Key | RemoteModel | UpstreamKey | Alert

GOOGLES: Final = "GOOGLE_APPLICATION_CREDENTIALS"
MAX_FILE_BYTES: Final = 1 << 20
"""A bundle of all the authorities that there are is a quarter of that."""


def read_secret(
    *,
    env: str = "",
    file: str = "",
    command: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> str:
    """The secret that is referred to, without white space around it; empty without a reference.

    Raises `ConfigInvalid` where the reference leads to nothing. A command is run, and waited for.
    """
    if command:
        return output_of(command)
    if env:
        value = (environment() if environ is None else environ).get(env, "").strip()
        if not value:
            raise ConfigInvalid(f"the environment variable {env} isn't set")
        return value
    if not file:
        return ""
    try:
        value = text_of(file).strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as cause:
        raise ConfigInvalid(f"the key file {file} can't be read: {cause}") from cause
    if not value:
        raise ConfigInvalid(f"the key file {file} is empty")
    return value


def usual_secret(signs: str, environ: Mapping[str, str] | None = None) -> str:
    """What calls that are authorised in this way use where a section refers to nothing.

    For Google it is the file that its usual variable names; others find theirs themselves, or need
    none. Raises `ConfigInvalid`.
    """
    if signs != "google":
        return ""
    file = (environment() if environ is None else environ).get(GOOGLES, "").strip()
    if not file:
        raise ConfigInvalid(
            f"it has no credentials: give key_env, key_file or key_command, or set {GOOGLES}"
        )
    return read_secret(file=file)


def text_of(path: str, encoding: str = "utf-8") -> str:
    """The text of a file that a setting names; raises `OSError`, `UnicodeDecodeError` and
    `RuntimeError`.

    A pipe or a device would be waited for, or never end: only a file of moderate length is one.
    """
    fd = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise RuntimeError("it is no regular file")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise RuntimeError(f"it is longer than {MAX_FILE_BYTES} bytes")
    return content.decode(encoding)


def hashed(key: str) -> str:
    """The sha256 of an API key in hexadecimal: what is compared and published instead of it."""
    return hashlib.sha256(key.encode()).hexdigest()


def commands_of(config: Config) -> list[Command]:
    """The programs that print keys, of tenants, of remote models and of alerts."""
    sections: list[Section] = [key for _, _, key in _keys(config)]
    sections += config.alerts.values()
    sections += [key for _, _, key in _upstream_keys(config)]
    return [tuple(one.key_command) for one in sections if one.key_command]


def key_hashes(
    config: Config, environ: Mapping[str, str] | None = None, outputs: Outputs | None = None
) -> dict[str, tuple[str, str]]:
    """Tenant and key name by the hash of every key; raises `ConfigInvalid`.

    Two entries must not have the same key: nobody could say whose a request is. `outputs` are what
    programs printed; without it they are run.
    """
    outputs = outputs_of(commands_of(config)) if outputs is None else outputs
    owners: dict[str, tuple[str, str]] = {}
    for tenant, name, key in _keys(config):
        where = f"tenants.{tenant}.keys.{name}"
        digest = key.key_sha256 or hashed(_read(where, key, environ, outputs))
        if digest in owners:
            other = "tenants.{}.keys.{}".format(*owners[digest])
            raise ConfigInvalid(f"this is the same key as {other}", where=where)
        owners[digest] = (tenant, name)
    return owners


def upstream_keys(
    config: Config, environ: Mapping[str, str] | None = None, outputs: Outputs | None = None
) -> dict[str, str]:
    """The keys of remote models, by the names that `RemoteModel.every_key` gives them; raises
    `ConfigInvalid` where one can't be read."""
    outputs = outputs_of(commands_of(config)) if outputs is None else outputs
    return {
        name: _read(where, key, environ, outputs) for name, where, key in _upstream_keys(config)
    }


def alert_keys(
    config: Config, environ: Mapping[str, str] | None = None, outputs: Outputs | None = None
) -> dict[str, str]:
    """What alerts are signed with, by name; raises `ConfigInvalid` where one can't be read."""
    outputs = outputs_of(commands_of(config)) if outputs is None else outputs
    return {
        name: _read(f"alerts.{name}", alert, environ, outputs)
        for name, alert in config.alerts.items()
    }


def unset_variables(
    config: Config, environ: Mapping[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """Settings that name a variable which isn't set here, and the variable's name."""
    found = environment() if environ is None else environ
    named: list[tuple[str, Section]] = [
        (f"tenants.{tenant}.keys.{name}", key) for tenant, name, key in _keys(config)
    ]
    named += [(where, key) for _, where, key in _upstream_keys(config)]
    named += [(f"alerts.{name}", alert) for name, alert in config.alerts.items()]
    for where, section in named:
        variable = getattr(section, "key_env", "")
        if variable and not found.get(variable, "").strip():
            yield f"{where}.key_env", variable


def _upstream_keys(config: Config) -> Iterator[tuple[str, str, RemoteModel | UpstreamKey]]:
    for model_name, model in config.models.items():
        if isinstance(model, RemoteModel):
            for name, below, key in model.every_key(model_name):
                yield name, f"models.{model_name}{below}", key


def _keys(config: Config) -> Iterator[tuple[str, str, Key]]:
    for tenant_name, tenant in config.tenants.items():
        for _, name, key in tenant.every_key():
            yield tenant_name, name, key


def _read(
    where: str,
    section: Section,
    environ: Mapping[str, str] | None,
    outputs: Outputs,
) -> str:
    try:
        if section.key_command:
            found = outputs[tuple(section.key_command)]
            if isinstance(found, ConfigInvalid):
                raise found
            return found
        return read_secret(env=section.key_env, file=section.key_file, environ=environ)
    except ConfigInvalid as cause:
        raise ConfigInvalid(cause.message, where=where) from cause
