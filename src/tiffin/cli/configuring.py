"""The commands that change a running server's configuration, look at it, and take it back."""

from pathlib import Path
from typing import Annotated

import typer

from tiffin.cli.options import ApiKey, DataFolder, Url

config = typer.Typer(
    no_args_is_help=True, help="Look up what the server was told, and take it back."
)

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would change; nothing does.")
]


def apply(
    path: Annotated[Path, typer.Argument(help="The configuration file.")] = Path("tiffin.toml"),
    dry_run: DryRun = False,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Give a configuration to the running server.

    The server checks it, takes it whole or not at all, keeps what didn't change running, and
    replaces what did. Addresses and limits of the port itself need a new start. With --dry-run it
    shows every setting that would change, from what to what, the limits that would be tighter, and
    the models that would start, stop or be replaced.

    Examples:

        tiffin apply tiffin.toml --dry-run
        tiffin apply tiffin.toml
        tiffin apply tiffin.toml --url https://10.0.0.5:8443 --key sk-tiffin-...
    """
    from tiffin.cli.applying import applied, previewed, text_of
    from tiffin.cli.locate import control

    wanted = text_of(path)
    address = control(url=url, key=key, data=data)
    print("\n".join((previewed if dry_run else applied)(address, wanted)))


@config.command("import")
def import_config(
    path: Annotated[Path, typer.Argument(help="The configuration of a LiteLLM proxy, in YAML.")],
    to: Annotated[Path, typer.Option("--to", help="The file to write.")] = Path("tiffin.toml"),
    keys: Annotated[
        Path | None,
        typer.Option("--keys", help="Its virtual keys: what /key/list answers, as JSON."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Make a tiffin.toml of a LiteLLM proxy's config.yaml, and say what became of each setting.

    Models, several deployments of one, fallbacks, tries, timeouts, limits, budgets, prices, caches
    and keys are mapped; what isn't is named with the reason, and what is left to do. No secret is
    written: a key becomes the name of a variable, or its sha256.

    Examples:

        tiffin config import config.yaml
        tiffin config import config.yaml --keys keys.json --to production.toml
    """
    from tiffin.cli.moving import import_litellm

    print("\n".join(import_litellm(path, keys, to, overwrite=force)))


@config.command("history")
def history(url: Url = "", key: ApiKey = "", data: DataFolder = None) -> None:
    """List the configurations that were in force: number, when (UTC), sha256, by whom.

    The last twenty are kept.

    Example:

        tiffin config history
    """
    from tiffin.cli.applying import remembered
    from tiffin.cli.locate import control

    for line in remembered(control(url=url, key=key, data=data)):
        print(line)


@config.command("rollback")
def rollback(
    number: Annotated[
        int, typer.Argument(help="Which; without it, the one before.", show_default=False)
    ] = 0,
    dry_run: DryRun = False,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Give the server a configuration again that it had before, as `tiffin apply` gives one.

    Examples:

        tiffin config rollback
        tiffin config rollback 7 --dry-run
    """
    from tiffin.cli.applying import applied, previewed
    from tiffin.cli.locate import control

    address = control(url=url, key=key, data=data)
    print("\n".join((previewed if dry_run else applied)(address, {"number": number})))
