"""`tiffin tenants`, `tiffin projects` and `tiffin audit`: who uses a server, and who changed it."""

from typing import Annotated, Any

import typer

from tiffin.cli.options import ApiKey, AsJson, DataFolder, Url

tenants = typer.Typer(no_args_is_help=True, help="Let tenants in, and close them.")
projects = typer.Typer(no_args_is_help=True, help="Parts of tenants, with keys and limits.")
audit = typer.Typer(no_args_is_help=True, help="What admins changed.")

TenantName = Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)]
ProjectName = Annotated[str, typer.Argument(help="The project's name.", show_default=False)]
LimitsText = Annotated[
    str,
    typer.Option("--limits", help='"requests_per_minute = 60, concurrency = 2", or more rules.'),
]
WeightOption = Annotated[
    float | None, typer.Option("--weight", help="Its part where tenants share a model.")
]


@tenants.command("list")
def list_tenants(
    url: Url = "", key: ApiKey = "", data: DataFolder = None, as_json: AsJson = False
) -> None:
    """List the tenants of the configuration and those that were made here.

    Example:

        tiffin tenants list
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask, show, tenant_rows

    page = ask("GET", path_of("tenants"), url=url, key=key, data=data)
    show(page, tenant_rows(page["data"]), as_json=as_json)


@tenants.command("create")
def create_tenant(
    name: TenantName,
    limits: LimitsText = "",
    weight: WeightOption = None,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Let a tenant in. Its keys are made with `tiffin keys create`.

    Examples:

        tiffin tenants create acme
        tiffin tenants create acme --limits "requests_per_minute = 600, concurrency = 20"
    """
    from tiffin.cli.spellings import given, limits_of, path_of
    from tiffin.cli.tenancy_lines import ask

    body = given(name=name, limits=limits_of(limits) if limits else None, weight=weight)
    ask("POST", path_of("tenants"), body, url=url, key=key, data=data)
    print(f"{name} is in. Its first key: tiffin keys create {name} NAME")


@tenants.command("change")
def change_tenant(
    name: TenantName,
    limits: LimitsText = "",
    weight: WeightOption = None,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Change a tenant's limits or weight.

    Example:

        tiffin tenants change acme --limits "requests_per_minute = 1200"
    """
    from tiffin.cli.spellings import given, limits_of, path_of
    from tiffin.cli.tenancy_lines import ask

    body = given(limits=limits_of(limits) if limits else None, weight=weight)
    ask("PATCH", path_of("tenants", name), body, url=url, key=key, data=data)
    print(f"{name} is changed.")


@tenants.command("suspend")
def suspend_tenant(
    name: TenantName, url: Url = "", key: ApiKey = "", data: DataFolder = None
) -> None:
    """Refuse all requests of a tenant until it is resumed.

    Example:

        tiffin tenants suspend acme
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask

    ask("PATCH", path_of("tenants", name), {"suspended": True}, url=url, key=key, data=data)
    print(f"{name} is suspended.")


@tenants.command("resume")
def resume_tenant(
    name: TenantName, url: Url = "", key: ApiKey = "", data: DataFolder = None
) -> None:
    """Take requests again of a tenant that was suspended.

    Example:

        tiffin tenants resume acme
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask

    ask("PATCH", path_of("tenants", name), {"suspended": False}, url=url, key=key, data=data)
    print(f"{name} goes on.")


@tenants.command("close")
def close_tenant(
    name: TenantName, url: Url = "", key: ApiKey = "", data: DataFolder = None
) -> None:
    """Close a tenant for good: its keys end now, its name isn't used again.

    What it used stays in the accounts. To keep somebody out for a time, suspend the tenant.

    Example:

        tiffin tenants close acme
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask

    ask("DELETE", path_of("tenants", name), url=url, key=key, data=data)
    print(f"{name} is closed.")


@projects.command("list")
def list_projects(
    tenant: TenantName,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """List a tenant's projects.

    Example:

        tiffin projects list acme
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask, project_rows, show

    page = ask("GET", path_of("tenants", tenant, "projects"), url=url, key=key, data=data)
    show(page, project_rows(page["data"]), as_json=as_json)


@projects.command("create")
def create_project(
    tenant: TenantName,
    name: ProjectName,
    limits: LimitsText = "",
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Make a part of a tenant, with keys and limits of its own.

    Example:

        tiffin projects create acme search --limits "concurrency = 4"
    """
    from tiffin.cli.spellings import given, limits_of, path_of
    from tiffin.cli.tenancy_lines import ask

    body = given(name=name, limits=limits_of(limits) if limits else None)
    ask("POST", path_of("tenants", tenant, "projects"), body, url=url, key=key, data=data)
    print(f"{tenant} has a project {name}: tiffin keys create {tenant} NAME --project {name}")


@projects.command("change")
def change_project(
    tenant: TenantName,
    name: ProjectName,
    limits: LimitsText,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Give a project other limits.

    Example:

        tiffin projects change acme search --limits "concurrency = 8"
    """
    from tiffin.cli.spellings import limits_of, path_of
    from tiffin.cli.tenancy_lines import ask

    path = path_of("tenants", tenant, "projects", name)
    ask("PATCH", path, {"limits": limits_of(limits)}, url=url, key=key, data=data)
    print(f"{name} is changed.")


@projects.command("delete")
def delete_project(
    tenant: TenantName,
    name: ProjectName,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Delete a project that has no key any more.

    Example:

        tiffin projects delete acme search
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask

    ask("DELETE", path_of("tenants", tenant, "projects", name), url=url, key=key, data=data)
    print(f"{name} is deleted.")


@audit.command("list")
def list_entries(
    after: Annotated[int, typer.Option("--after", help="Begin behind this number.")] = 0,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """List what admins changed, the oldest first.

    Examples:

        tiffin audit list
        tiffin audit list --after 100 --json
    """
    from tiffin.cli.spellings import path_of
    from tiffin.cli.tenancy_lines import ask_all, entry_rows, show

    found = ask_all(path_of("audit"), "n", str(after), url=url, key=key, data=data)
    show(found, entry_rows(found["data"]), as_json=as_json)


@audit.command("verify")
def verify(
    noted: Annotated[
        list[str],
        typer.Option("--head", help="An end of the log that you noted earlier, as NUMBER:HASH."),
    ] = [],  # noqa: B006 - typer makes a new one for each call
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Say whether the audit log is as it was written: no line changed, gone, moved or cut off.

    It reads the files of the data folder, whether a server runs or not; with --url a server checks
    its own. Note the end that it prints somewhere else, and give it again later: then not even
    somebody who writes all files anew is overlooked.

    Examples:

        tiffin audit verify
        tiffin audit verify --head "$(cat noted)"
    """
    from tiffin.cli.tenancy_lines import show, verdict_of, verdict_rows

    verdict: dict[str, Any] = verdict_of(noted, url=url, key=key, data=data)
    show(verdict, verdict_rows(verdict), as_json=as_json)
    if not verdict["intact"]:
        raise typer.Exit(1)
