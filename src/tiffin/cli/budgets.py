"""`tiffin budgets` and `tiffin usage`: how money budgets stand, and what was used by whom."""

from typing import Annotated

import typer

from tiffin.cli.options import ApiKey, AsJson, AsParquet, DataFolder, Url, model_names

AsCsv = Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")]


def budgets(
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's.")] = "",
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Show how budgets of money stand: what is spent and left, and when it may run out.

    A forecast is made from the last week's hours; its interval holds in eight of ten cases.

    Examples:

        tiffin budgets
        tiffin budgets --tenant acme --json
    """
    from tiffin.cli.budgets_lines import show_budgets

    form = "json" if as_json else "csv" if as_csv else "text"
    show_budgets(tenant, form, url=url, key=key, data=data)


def usage(  # noqa: PLR0913 - options
    since: Annotated[
        str, typer.Option("--since", help="From this day, as 2026-04-01; else this month's first.")
    ] = "",
    until: Annotated[str, typer.Option("--until", help="Until this day begins; else now.")] = "",
    by: Annotated[
        str, typer.Option("--by", help="Rows by tenant, project, key, model, day.")
    ] = "tenant,model",
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's.")] = "",
    project: Annotated[str, typer.Option("--project", help="Only this project's.")] = "",
    of_key: Annotated[str, typer.Option("--of-key", help="Only the key's of this name.")] = "",
    model: Annotated[
        str, typer.Option("--model", help="Only this model's.", autocompletion=model_names)
    ] = "",
    as_csv: AsCsv = False,
    parquet: AsParquet = None,
    as_json: AsJson = False,
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
) -> None:
    """Show what was used: requests, tokens, pages, and what answers were told to cost.

    Examples:

        tiffin usage
        tiffin usage --since 2026-04-01 --until 2026-05-01 --by project,key
        tiffin usage --tenant acme --by day,model --csv
    """
    from tiffin.cli.budgets_lines import show_usage

    asked = {
        "since": since,
        "until": until,
        "by": by,
        "tenant": tenant,
        "project": project,
        "key": of_key,
        "model": model,
    }
    form = parquet or ("json" if as_json else "csv" if as_csv else "text")
    show_usage(asked, form, url=url, key=key, data=data)
