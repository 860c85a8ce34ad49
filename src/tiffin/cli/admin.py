"""Commands that ask a running server: its status, its models, a new configuration for it."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tiffin.cli import locate
from tiffin.cli.connect import Unreachable

MIB = 1 << 20
Json = dict[str, Any]
Row = tuple[str, ...]


def list_models(*, url: str, key: str, data: Path | None) -> None:
    """Print the names that clients can use with this key."""
    found = locate.server(url=url, key=key, data=data).call("GET", "/v1/models")
    for model in found["data"]:
        print(model["id"])


def switch_model(name: str, verb: str, *, url: str, key: str, data: Path | None) -> str:
    """Load, unload or restart a model of the running server and say what that means.

    Raises `Refused`.
    """
    address = locate.control(url=url, key=key, data=data)
    done = address.call("POST", f"/admin/v1/models/{quote(name, safe='')}/{verb}")
    if verb == "restart":
        return f"{name} starts anew; its old replicas answer until the new ones are ready."
    if done["loaded"]:
        return f"{name} is being loaded; `tiffin status` says when it is ready."
    return f"{name} is unloaded, over restarts too, until `tiffin models load {name}`."


def show_status(*, url: str, key: str, data: Path | None, as_json: bool) -> None:
    """Print what runs; without control, what the supervisor last wrote down."""
    address = locate.control(url=url, key=key, data=data)
    try:
        report = address.call("GET", "/admin/v1/status")
        totals = address.call("GET", "/admin/v1/accounts/totals")["data"]
    except Unreachable as failure:
        if url:
            raise
        report, totals = _without_control(failure, data), []
    if as_json:
        print(json.dumps({"status": report, "totals": totals}, indent=2))
    else:
        print("\n".join(_lines(report, totals)))


def _without_control(failure: Unreachable, data: Path | None) -> Json:
    import msgspec

    here = locate.folder(locate.configured(None, data).config, data)
    status = locate.running(here)
    if status is None:
        raise Unreachable(f"nothing serves the data folder {here.root}") from failure
    found: Json = msgspec.to_builtins(status)
    return found | {"degraded": [f"control doesn't answer: {failure}"]}


def _lines(report: Json, totals: list[Json]) -> Iterator[str]:
    yield f"Tiffin at {report['address']}"
    if "snapshot" in report:
        yield f"configuration {report['config_source']}, snapshot {report['snapshot']}"
    if (upgrade := report.get("upgrade")) and upgrade["stage"] != "done":
        reason = f": {upgrade['reason']}" if upgrade["reason"] else ""
        yield f"! upgrade to {upgrade['version'] or upgrade['python']}: {upgrade['stage']}{reason}"
    yield from (f"! {reason}" for reason in report["degraded"])
    models = [_model(model) for model in report.get("models", ())]
    models += [
        (route["name"], "route", "tries " + ", ".join(route["models"]))
        for route in report.get("routes", ())
    ]
    yield from _table("models", models)
    if budget := report.get("memory_budget_bytes"):
        counted = report.get("memory_counted_bytes", 0)
        warm = f"; {report['warm']} started processes wait for a model" if report["warm"] else ""
        yield f"  {counted / MIB:.0f} of {budget / MIB:.0f} MB of memory are taken{warm}"
    yield from _table("processes", [_process(process) for process in report["processes"]])
    if totals:
        outcomes: Counter[str] = Counter()
        for total in totals:
            outcomes[total["outcome"]] += total["requests"]
        yield from _table("accounts", [(name, str(count)) for name, count in outcomes.items()])
    if "journal" in report:
        journal = report["journal"]
        yield f"  {journal['behind_s']:.1f} s behind, {journal['bytes']} bytes of journals"


def _model(model: Json) -> Row:
    return (*_standing(model), _engine(model), _coming(model.get("coming")))


def _engine(model: Json) -> str:
    engine, why = model.get("engine", ""), model.get("engine_why", "")
    if not engine:
        return ""
    return f"(by {engine}: {why})" if why else f"(by {engine})"


def _coming(coming: Json | None) -> str:
    if coming is None:
        return ""
    reason = f": {coming['reason']}" if coming["reason"] else ""
    return f"({coming['revision'].removeprefix('sha256:')[:8]} comes, {coming['state']}{reason})"


def _standing(model: Json) -> Row:
    if model["total_bytes"] and model["state"] == "fetching":
        share = f"{model['done_bytes'] / 1e6:.0f} of {model['total_bytes'] / 1e6:.0f} MB"
        return model["name"], model["state"], share
    if model["state"] == "ready" and model["load_ms"]:
        times = f"loaded in {model['load_ms']} ms, first answer in {model['warm_ms']} ms"
        return model["name"], model["state"], times, _memory(model)
    return model["name"], model["state"], model["reason"], _memory(model)


def _memory(model: Json) -> str:
    replicas = model.get("replicas", ())
    counted = sum(one.get("need_bytes", 0) for one in replicas)
    if not counted:
        return ""
    most = max(one["memory_bytes"] for one in replicas)
    measured = f", measured {most / MIB:.0f} MB" if most else ""
    cold = max(one["cold_ms"] for one in replicas)
    start = f", starts in {cold / 1000:.1f} s" if cold and model["state"] != "ready" else ""
    each = f" in {len(replicas)} replicas" if len(replicas) > 1 else ""
    return f"[{counted / MIB:.0f} MB{each}{measured}{start}]"


def _process(process: Json) -> Row:
    again = f"restarted {process['restarts']} times" if process["restarts"] else ""
    reason = ": ".join(filter(None, (process["reason"], process.get("said"))))
    why = f"{again}; {reason}" if again and reason else again
    return process["name"], process["state"], f"pid {process['pid']}", why


def _table(title: str, rows: list[Row]) -> Iterator[str]:
    yield ""
    yield title
    widths = [max(len(row[column]) for row in rows) for column in range(2)] if rows else []
    for row in rows:
        first, second = (cell.ljust(width) for cell, width in zip(row[:2], widths, strict=True))
        yield "  ".join(["", first, second, *filter(None, row[2:])]).rstrip()
