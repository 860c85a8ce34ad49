"""`tiffin cost`: what was spent and for whom, what use costs now, invoices that come in."""

from pathlib import Path
from typing import Annotated

import typer

from tiffin.cli.options import ApiKey, AsJson, AsParquet, DataFolder, Url, model_names

cost = typer.Typer(no_args_is_help=True, help="What was spent, for whom and for what.")


@cost.command("statement")
def statement(  # noqa: PLR0913 - options
    since: Annotated[
        str, typer.Option("--since", help="From this day, as 2026-04-01; else this month's first.")
    ] = "",
    until: Annotated[str, typer.Option("--until", help="Until this day begins; else now.")] = "",
    by: Annotated[
        str,
        typer.Option("--by", help="Rows by line, tenant, project, key, tag, model, day."),
    ] = "tenant,line",
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's.")] = "",
    project: Annotated[str, typer.Option("--project", help="Only this project's.")] = "",
    tag: Annotated[str, typer.Option("--tag", help="Only this workflow's.")] = "",
    model: Annotated[
        str, typer.Option("--model", help="Only this model's.", autocompletion=model_names)
    ] = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
    parquet: AsParquet = None,
    as_json: AsJson = False,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Show what was spent: requests, waste, idle and loading sum to the bill, to the last unit.

    What things cost stands in the configuration, in its sections of prices.

    Examples:

        tiffin cost statement
        tiffin cost statement --since 2026-04-01 --until 2026-05-01 --by tenant,model
        tiffin cost statement --tenant acme --by day --csv
        tiffin cost statement --by day,tenant,model --parquet april.parquet
        tiffin cost statement --json
    """
    from tiffin.cli.costs_lines import show_statement

    asked = {
        "since": since,
        "until": until,
        "by": by,
        "tenant": tenant,
        "project": project,
        "tag": tag,
        "model": model,
    }
    form = parquet or ("json" if as_json else "csv" if as_csv else "text")
    show_statement(asked, form, url=url, key=key, data=data)


@cost.command("rates")
def rates(
    url: Url = "", key: ApiKey = "", data: DataFolder = None, as_json: AsJson = False
) -> None:
    """Show what use of each model costs now.

    Example:

        tiffin cost rates
    """
    from tiffin.cli.costs_lines import show_rates

    show_rates(url=url, key=key, data=data, as_json=as_json)


@cost.command("import")
def import_invoice(
    path: Annotated[Path, typer.Argument(help="The invoice: a CSV as FOCUS has it.")],
    name: Annotated[
        str, typer.Option("--name", "-n", help="What it is known by; else the file's name.")
    ] = "",
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Take in an invoice; what it says more or less than the prices is a statement's variance.

    An invoice of a name that was taken in before is left as it was.

    Examples:

        tiffin cost import april.csv
        tiffin cost import export.csv --name aws-2026-04
    """
    from tiffin.cli.costs_lines import take_invoice

    print(take_invoice(path, name, url=url, key=key, data=data))
