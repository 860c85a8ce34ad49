"""`tiffin cache`: answers that may be given again."""

from pathlib import Path
from typing import Annotated

import typer

from tiffin.cli.options import ApiKey, AsJson, DataFolder, ModelName, Url, model_names

cache = typer.Typer(no_args_is_help=True, help="Look at kept answers, let go of them.")


@cache.command("list")
def list_answers(
    url: Url = "", key: ApiKey = "", data: DataFolder = None, as_json: AsJson = False
) -> None:
    """Show how many answers are kept, by tenant and model.

    Examples:

        tiffin cache list
        tiffin cache list --json
    """
    from tiffin.cli.tenancy_lines import ask, show

    page = ask("GET", "/admin/v1/cache", url=url, key=key, data=data)
    if not (page["data"] or as_json):
        print("No answer is kept; docs/howto/caching.md tells how to have some kept.")
        return
    rows = (
        (one["tenant"], one["model"], f"{one['entries']} answers", f"{one['bytes']} bytes")
        for one in page["data"]
    )
    show(page, rows, as_json=as_json)


@cache.command("purge")
def purge(
    which: Annotated[
        str, typer.Argument(help="One answer, as x-tiffin-cache-key named it; or 'all'.")
    ] = "",
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's.")] = "",
    model: Annotated[
        str, typer.Option("--model", help="Only this model's.", autocompletion=model_names)
    ] = "",
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Let go of kept answers now; nothing of them is left on the disk.

    Examples:

        tiffin cache purge --tenant acme
        tiffin cache purge --tenant acme --model chat
        tiffin cache purge 5c0fa1
        tiffin cache purge all
    """
    from tiffin.cli.tenancy_lines import ask

    everything = which == "all"
    wanted = {"tenant": tenant, "model": model, "all": everything}
    if not everything:
        wanted["key"] = which
    done = ask("POST", "/admin/v1/cache/purge", wanted, url=url, key=key, data=data)
    print(f"{done['entries']} answers were let go of")


@cache.command("calibrate")
def calibrate_semantic(
    embedder: ModelName,
    pairs: Annotated[
        Path | None,
        typer.Option("--pairs", help="Labelled pairs, one as JSON a line, instead of ours."),
    ] = None,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Find how similar questions must be for a semantic cache, with the vectors of a model of the
    running server, and print the setting.

    A line of the file is {"a": "…", "b": "…", "same": true, "language": "en"}. A language that no
    threshold makes safe is off.

    Examples:

        tiffin cache calibrate embed-en
        tiffin cache calibrate embed-en --pairs ours.jsonl
    """
    from tiffin.cli import locate
    from tiffin.cli.calibrating_cache import calibrate

    calibrate(locate.server(url=url, key=key, data=data), embedder, pairs, as_json=as_json)
