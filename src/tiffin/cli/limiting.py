"""`tiffin limits`: who may use how much, and how much of it is left."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tiffin.cli.options import ApiKey, AsJson, DataFolder, Url

Json = dict[str, Any]


def limits(
    holder: Annotated[
        str, typer.Argument(help="Only those whose holder has this in its name.")
    ] = "",
    url: Url = "",
    key: ApiKey = "",
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the limits that hold, and what is left of them right now.

    Examples:

        tiffin limits
        tiffin limits acme
        tiffin limits "key 'acme/web'" --json
    """
    from tiffin.cli.tenancy_lines import ask, show

    page = ask("GET", "/admin/v1/limits", url=url, key=key, data=data)
    page["data"] = [one for one in page["data"] if holder in one["holder"]]
    if not (page["data"] or as_json):
        print("Nobody has a limit here; docs/howto/limits.md tells how to set one.")
        return
    show(page, _rows(page), as_json=as_json)


def _rows(page: Json) -> Iterator[tuple[str, ...]]:
    for one in page["data"]:
        rule = one["rule"]
        what = rule["of"].replace("_", " ") + (f" per {rule['per']}" if rule.get("per") else "")
        if rule.get("models"):
            what += f" with {', '.join(rule['models'])}"
        left = f"{_shown(one['left'], page, rule)} of {_shown(one['whole'], page, rule)} left"
        resets = f"all of it in {_time(one['resets_s'])}" if one.get("resets_s") else ""
        yield one["holder"], what, left, resets, "shadow" if rule.get("shadow") else ""


def _shown(amount: int, page: Json, rule: Json) -> str:
    from tiffin.types.money import shown

    return shown(amount, page["currency"]) if rule["of"] == "money" else str(amount)


def _time(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"
