"""`tiffin keys`: made, listed, changed, rotated and revoked on a running server."""

import sys
from typing import Annotated

import typer

from tiffin.cli.options import ApiKey, AsJson, DataFolder, Url
from tiffin.cli.tenancy import LimitsText, TenantName

keys = typer.Typer(no_args_is_help=True, help="Make, rotate and revoke keys.")

KeyName = Annotated[str, typer.Argument(help="The key's name.", show_default=False)]
Models = Annotated[
    list[str], typer.Option("--model", help="A model or route that it is for; again for more.")
]
Endpoints = Annotated[
    list[str], typer.Option("--endpoint", help="An endpoint that it is for, such as chat.")
]
Role = Annotated[str, typer.Option("--role", help="user, viewer, tenant-admin, auditor or admin.")]
Tools = Annotated[
    bool | None, typer.Option("--tools/--no-tools", help="Whether requests may offer tools.")
]
DataClass = Annotated[
    str, typer.Option("--data-class", help="public, internal, confidential or restricted.")
]
Region = Annotated[str, typer.Option("--region", help="Where its data must stay.")]
Expires = Annotated[
    str, typer.Option("--expires", help="When it ends: 2027-01-31T18:00:00Z, or 90d from now.")
]


@keys.command("list")
def list_keys(
    tenant: TenantName,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """List a tenant's keys, each by its name and the beginning of its secret.

    Example:

        tiffin keys list acme
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask_all, key_rows, show

    path = path_of("tenants", tenant, "keys")
    found = ask_all(path, "name", "", url=url, key=key, data=data)
    show(found, key_rows(found["data"]), as_json=as_json)


@keys.command("create")
def create_key(  # noqa: PLR0913 - options
    tenant: TenantName,
    name: KeyName,
    project: Annotated[str, typer.Option("--project", help="The project it belongs to.")] = "",
    role: Role = "",
    model: Models = [],  # noqa: B006 - typer makes a new one for each call
    endpoint: Endpoints = [],  # noqa: B006
    tools: Tools = None,
    data_class: DataClass = "",
    region: Region = "",
    expires: Expires = "",
    limits: LimitsText = "",
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Make a key and print it, this once: the server keeps only its hash.

    Examples:

        tiffin keys create acme website
        tiffin keys create acme nightly --project search --model chat --endpoint chat --no-tools
        tiffin keys create acme trial --expires 14d --limits "requests_per_minute = 10"
        tiffin keys create acme boss --role tenant-admin
    """
    from tiffin.cli.spellings import given, limits_of, moment_of, path_of
    from tiffin.cli.tenancy_lines import ask

    body = given(
        name=name,
        project=project,
        role=role,
        models=model,
        endpoints=endpoint,
        tools=tools,
        data_class=data_class,
        region=region,
        expires=moment_of(expires) if expires else None,
        limits=limits_of(limits) if limits else None,
    )
    path = path_of("tenants", tenant, "keys")
    _tell(ask("POST", path, body, url=url, key=key, data=data)["secret"])


@keys.command("change")
def change_key(  # noqa: PLR0913 - options
    tenant: TenantName,
    name: KeyName,
    role: Role = "",
    model: Models = [],  # noqa: B006
    endpoint: Endpoints = [],  # noqa: B006
    tools: Tools = None,
    data_class: DataClass = "",
    region: Region = "",
    expires: Expires = "",
    limits: LimitsText = "",
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Change what a key is for, or when it ends; what isn't said stays.

    Examples:

        tiffin keys change acme website --model chat --model embed
        tiffin keys change acme trial --expires 30d
    """
    from tiffin.cli.spellings import given, limits_of, moment_of, path_of
    from tiffin.cli.tenancy_lines import ask

    body = given(
        role=role,
        models=model,
        endpoints=endpoint,
        tools=tools,
        data_class=data_class,
        region=region,
        expires=moment_of(expires) if expires else None,
        limits=limits_of(limits) if limits else None,
    )
    ask("PATCH", path_of("tenants", tenant, "keys", name), body, url=url, key=key, data=data)
    print(f"{tenant}/{name} is changed.")


@keys.command("rotate")
def rotate_key(
    tenant: TenantName,
    name: KeyName,
    overlap: Annotated[
        str, typer.Option("--overlap", help="How long the one before stays good: 24h, 30m, 0.")
    ] = "24h",
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Give a key a new secret and print it, this once; the one before is good for some time yet.

    Examples:

        tiffin keys rotate acme website
        tiffin keys rotate acme website --overlap 0
    """
    from tiffin.cli.spellings import path_of, seconds_of
    from tiffin.cli.tenancy_lines import ask

    path = path_of("tenants", tenant, "keys", name, "rotate")
    body = {"overlap_s": seconds_of(overlap)}
    _tell(ask("POST", path, body, url=url, key=key, data=data)["secret"])


@keys.command("revoke")
def revoke_key(
    tenant: TenantName,
    name: KeyName,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """End a key now, on every gateway within a second.

    Example:

        tiffin keys revoke acme website
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask

    ask("DELETE", path_of("tenants", tenant, "keys", name), url=url, key=key, data=data)
    print(f"{tenant}/{name} is revoked.")


def _tell(secret: str) -> None:
    print(secret)
    print("This is shown once; only its hash is kept.", file=sys.stderr)
