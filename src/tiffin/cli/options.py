"""Options that several commands have, each described once."""

from pathlib import Path
from typing import Annotated

import typer


def model_names() -> list[str]:
    """For shell completion: the models and routes of the configuration here."""
    from tiffin.cli.locate import configured

    config = configured(None).config
    return [*config.models, *config.routes]


ModelName = Annotated[
    str, typer.Argument(help="The model's name.", autocompletion=model_names, show_default=False)
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The configuration; without it ./tiffin.toml if there is one, else the starter's.",
    ),
]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="The data folder, instead of the configured one.")
]
Url = Annotated[
    str, typer.Option("--url", help="The server's address, instead of the one that runs here.")
]
ApiKey = Annotated[
    str, typer.Option("--key", help="The API key.", envvar="TIFFIN_API_KEY", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsParquet = Annotated[
    Path | None, typer.Option("--parquet", help="Write the rows to this file, as Parquet.")
]
