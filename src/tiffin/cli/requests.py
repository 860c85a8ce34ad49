"""`tiffin requests`: what was asked, how it went, and why it took its time."""

from functools import partial
from typing import Annotated

import typer

from tiffin.cli.options import ApiKey, AsJson, DataFolder, Url, model_names

requests = typer.Typer(no_args_is_help=True, help="See requests: how each went, and why.")


@requests.command("list")
def list_requests(  # noqa: PLR0913 - options
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's.")] = "",
    project: Annotated[str, typer.Option("--project", help="Only this project's.")] = "",
    by_key: Annotated[str, typer.Option("--of-key", help="Only those with this key.")] = "",
    end_user: Annotated[str, typer.Option("--end-user", help="Only for this end user.")] = "",
    tag: Annotated[str, typer.Option("--tag", help="Only this workflow's.")] = "",
    model: Annotated[
        str, typer.Option("--model", help="Only to this model.", autocompletion=model_names)
    ] = "",
    outcome: Annotated[
        str,
        typer.Option(
            "--outcome", help="Only ok, partial, cancelled, failed, refused or lost ones."
        ),
    ] = "",
    error: Annotated[str, typer.Option("--error", help="Only with this error's code.")] = "",
    trace: Annotated[str, typer.Option("--trace", help="Only of this trace.")] = "",
    slower_ms: Annotated[
        int, typer.Option("--slower-than-ms", help="Only those that took so long.", min=0)
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="The newest so many.", min=1, max=1000)
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new ones until Ctrl-C.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Show the newest requests that have ended, the newest last.

    Content is never shown: it isn't kept.

    Examples:

        tiffin requests list
        tiffin requests list --outcome failed --model chat
        tiffin requests list --tenant acme --slower-than-ms 2000
        tiffin requests list --follow
    """
    from tiffin.cli.requests_lines import show_requests
    from tiffin.cli.tenancy_lines import ask

    wanted = {
        "tenant": tenant,
        "project": project,
        "key": by_key,
        "end_user": end_user,
        "tag": tag,
        "model": model,
        "outcome": outcome,
        "error": error,
        "trace_id": trace,
        "slower_ms": slower_ms,
    }
    asked = {name: value for name, value in wanted.items() if value}
    look = partial(ask, "GET", url=url, key=key, data=data)
    show_requests(asked, limit, look, follow=follow, as_json=as_json)


@requests.command("show")
def show_one(
    identifier: Annotated[
        str, typer.Argument(help="The request, as its header x-request-id said.", metavar="ID")
    ],
    as_json: AsJson = False,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Show one request: who asked, how it went, where its time went, what it cost, every try.

    Example:

        tiffin requests show req_01a23c27cca45d8e1d531302a9f3391c
    """
    from tiffin.cli.requests_lines import show_request
    from tiffin.cli.tenancy_lines import ask

    show_request(identifier, partial(ask, "GET", url=url, key=key, data=data), as_json=as_json)
