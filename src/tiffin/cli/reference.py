"""The pages of docs/reference, written from the code: `python -m tiffin.cli.reference FOLDER`."""

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_origin

import msgspec

from tiffin.cli import template
from tiffin.config import alerts, models, objectives, prices, remote, schema, shape, terms, vault
from tiffin.config.store_address import StoreAddress
from tiffin.dialects.openai.errors import TABLE
from tiffin.dialects.openapi import document
from tiffin.errors import TiffinError, every_error
from tiffin.telemetry import events
from tiffin.types import caching
from tiffin.types.anomalies import Anomalies, Threshold
from tiffin.types.budgets import Budget
from tiffin.types.caps import Caps
from tiffin.types.limits import Limits, Rule
from tiffin.types.tls import Tls
from tiffin.types.usage import Usage

WRITTEN = "<!-- Written from the code by `make docs`. Change the code, not this page. -->\n"

# The upper bound of every time; in the tables it would only distract.
_A_YEAR = re.compile(r" to 3\.1536e\+\d+")

# Each part of the configuration, where it stands, and the template's section that explains it.
PARTS: tuple[tuple[type[msgspec.Struct], str, str], ...] = (
    (schema.Config, "", ""),
    (schema.Server, "[server]", "server"),
    (Tls, "[server.tls]", "server.tls"),
    (vault.Vault, "[server.vault]", "server.vault"),
    (vault.MasterKey, "[server.vault.previous]", "server.vault.previous"),
    (vault.Idempotency, "[server.idempotency]", "server.idempotency"),
    (vault.AnswerCache, "[server.cache]", "server.cache"),
    (StoreAddress, "[server.limit_store]", "server.limit_store"),
    (schema.Tenant, "[tenants.NAME]", "tenants.starter"),
    (Limits, "[tenants.NAME.limits]", "tenants.starter.limits"),
    (Rule, "[[tenants.NAME.limits.rules]]", "tenants.starter.limits.rules"),
    (Caps, "[tenants.NAME.limits.per_request]", "tenants.starter.limits.per_request"),
    (Budget, "[tenants.NAME.budgets.BUDGET]", "tenants.starter.budgets.monthly"),
    (schema.Project, "[tenants.NAME.projects.PROJECT]", "tenants.starter.projects.search"),
    (schema.Key, "[tenants.NAME.keys.KEY]", "tenants.starter.keys.main"),
    (models.LlamacppModel, '[models.NAME] with runtime = "llamacpp"', "models.chat-tiny"),
    (models.File, "[models.NAME.files.FILE]", 'models.fraud.files."model.onnx"'),
    (caching.Caching, "[models.NAME.cache]", "models.chat-tiny.cache"),
    (
        caching.SemanticCaching,
        "[models.NAME.cache.semantic]",
        "models.chat-tiny.cache.semantic",
    ),
    (objectives.Slo, "[models.NAME.slo]", "models.chat-tiny.slo"),
    (models.OnnxModel, '[models.NAME] with runtime = "onnx"', "models.fraud"),
    (models.Decision, "[models.NAME.decision]", "models.fraud.decision"),
    (models.PythonModel, '[models.NAME] with runtime = "python"', "models.own"),
    (models.PipelineModel, '[models.NAME] with runtime = "pipeline"', "models.review"),
    (models.PipelineStep, "[[models.NAME.steps]]", "models.review.steps"),
    (models.WhisperModel, '[models.NAME] with runtime = "whisper"', "models.listen"),
    (models.LaunchedModel, '[models.NAME] with runtime = "launched"', "models.large"),
    (models.RemoteModel, '[models.NAME] with runtime = "remote"', "models.cloud"),
    (remote.UpstreamKey, "[[models.NAME.keys]]", "models.cloud.keys"),
    (models.RulesModel, '[models.NAME] with runtime = "rules"', "models.sorry"),
    (models.AnswerRule, "[[models.NAME.rules]]", "models.sorry.rules"),
    (models.EchoModel, '[models.NAME] with runtime = "echo"', "models.parrot"),
    (schema.Route, "[routes.NAME]", "routes.best"),
    (schema.Hedge, "[routes.NAME.hedge]", "routes.best.hedge"),
    (caching.Caching, "[routes.NAME.cache]", "routes.best.cache"),
    (caching.SemanticCaching, "[routes.NAME.cache.semantic]", "routes.best.cache.semantic"),
    (objectives.Slo, "[routes.NAME.slo]", "routes.best.slo"),
    (schema.Guard, "[guards.NAME]", "guards.personal"),
    (schema.Egress, "[egress]", "egress"),
    (terms.DataTerms, "[terms.CLASS]", "terms.confidential"),
    (prices.Prices, "[prices]", "prices"),
    (prices.Rate, "[[prices.rates]]", "prices.rates"),
    (prices.MachinePrice, "[[prices.machines]]", "prices.machines"),
    (prices.ModelPrice, "[[prices.models]]", "prices.models"),
    (prices.FixedPrice, "[[prices.fixed]]", "prices.fixed"),
    (prices.Credit, "[[prices.credits]]", "prices.credits"),
    (prices.PricePlan, "[[prices.plans]]", "prices.plans"),
    (alerts.Alert, "[alerts.NAME]", "alerts.ops"),
    (Anomalies, "[anomalies]", "anomalies"),
    (Threshold, "[anomalies.SIGNAL]", "anomalies.repetition"),
    (schema.Telemetry, "[telemetry]", "telemetry"),
)


def config_page() -> str:
    """Every setting with its type, default and meaning."""
    meanings = {(item.section, item.name): item.meaning for item in template.settings()}
    page = [
        "# Configuration",
        "",
        WRITTEN,
        "One file, `tiffin.toml`, in [TOML](https://toml.io). `tiffin init` writes it with every",
        "setting explained; `tiffin check` says whether a file is right. Without a file, Tiffin",
        "serves the starter models.",
        "",
        "A variable such as `TIFFIN__SERVER__PORT` wins over the file: two underscores for each",
        "dot. [config.schema.json](config.schema.json) is the same as a JSON Schema.",
        "",
    ]
    for struct, heading, section in PARTS:
        if heading:
            page += [f"## `{heading}`", ""]
        page += ["| setting | expected | default | meaning |", "|---|---|---|---|"]
        for row in msgspec.structs.fields(struct):
            own = meanings.get((section, row.name)) or meanings.get(("models.chat-tiny", row.name))
            if own is not None:
                allowed = shape.expected(msgspec.inspect.type_info(row.type))
                allowed = _A_YEAR.sub("", allowed)
                page.append(f"| `{row.name}` | {allowed} | {_default(row)} | {own} |")
        page.append("")
    return "\n".join(page)


def config_schema() -> str:
    """The configuration as a JSON Schema."""
    return json.dumps(schema.config_schema(), indent=2, sort_keys=True) + "\n"


def errors_page() -> str:
    """Every error with its slug, its canonical code and whether another try can help."""
    page = [
        "# Errors",
        "",
        WRITTEN,
        "A program reads the slug or the `code`, which never change; a person reads the message,",
        "which may. An error marked *retry* may pass when it is tried again, after `Retry-After`",
        "where that header is given. In OpenAI's dialect every error is",
        '`{"error": {"message", "type", "param", "code"}}`.',
        "",
        "| slug | status | OpenAI's `code` | canonical code | retry | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for error in every_error():
        if error.__module__ != TiffinError.__module__:
            continue  # somebody else's
        shape_ = TABLE.get(error.slug)
        wire = f"{shape_.status} | `{shape_.code}`" if shape_ else "|"
        retry = "yes" if error.retryable else ""
        cells = f"`{error.slug}` | {wire} | {error.code.value} | {retry} | {_sentence(error)}"
        page.append(f"| {cells} |")
    return "\n".join([*page, ""])


def events_page() -> str:
    """Every event of an account, field by field."""
    page = [
        "# Events",
        "",
        WRITTEN,
        "A process appends one line to its journal when it opens an account and one when it closes",
        f"it. These are their fields, in version {events.EVENT_VERSION}.",
        "",
    ]
    for struct in (events.Opened, events.Closed, events.Attempt, Usage):
        page += [f"## {struct.__name__}", "", _sentence(struct), ""]
        page += ["| field | type | default |", "|---|---|---|"]
        for row in msgspec.structs.fields(struct):
            page.append(f"| `{row.name}` | {_type(row.type)} | {_default(row)} |")
        page.append("")
    page += ["## Outcomes", "", _sentence(events.Outcome), ""]
    page += [f"- `{outcome.value}`" for outcome in events.Outcome]
    return "\n".join([*page, ""])


def cli_page() -> str:
    """Every command with its arguments, options and examples."""
    import typer.main

    from tiffin.cli.main import app

    page = ["# Command line", "", WRITTEN]
    for words, command in _commands("tiffin", typer.main.get_command(app)):
        page += [f"## `{words}`", "", inspect.cleandoc(command.help or ""), ""]
        rows = [_parameter(item) for item in command.params if item.name != "help"]
        if rows:
            page += ["| argument or option | default | meaning |", "|---|---|---|", *rows, ""]
    return "\n".join(page)


def metrics_page() -> str:
    """Every metric that is declared anywhere in the package."""
    page = [
        "# Metrics",
        "",
        WRITTEN,
        "`GET /metrics` has them all for the machine, in Prometheus's text format. Engines are",
        "counted under the names that vLLM gave these things, so that its dashboards fit.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    rows = {
        name: row for path in _sources() for name, row in _declared(ast.parse(path.read_text()))
    }
    return "\n".join([*page, *(rows[name] for name in sorted(rows)), ""])


def modules_page() -> str:
    """Every module by what it promises."""
    page = ["# Modules", "", WRITTEN]
    package = ""
    for path in _sources():
        promise = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        if not promise:
            continue
        *packages, name = path.relative_to(Path(template.__file__).parents[1]).parts
        if package != (package := "/".join(packages) or "tiffin"):
            page += ["", f"## {package}", ""]
        page.append(f"- **{name.removesuffix('.py')}**: {' '.join(promise.split())}")
    return "\n".join([*page, ""])


def http_page() -> str:
    """The OpenAPI document."""
    return document().decode() + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "config.md": config_page,
    "config.schema.json": config_schema,
    "errors.md": errors_page,
    "events.md": events_page,
    "metrics.md": metrics_page,
    "modules.md": modules_page,
    "openapi.json": http_page,
}


def write(folder: Path) -> None:
    """Write every page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


def _sources() -> list[Path]:
    return sorted(Path(template.__file__).parents[1].rglob("*.py"))


def _declared(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Declarations such as `meter.counter("name", "meaning", ("label",))`, as rows of the table."""
    constants = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(module):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr not in ("counter", "gauge", "histogram") or len(call.args) < 2:
            continue
        given = [constants.get(a.id, a) if isinstance(a, ast.Name) else a for a in call.args[:3]]
        name, meaning, *labels = (ast.literal_eval(node) for node in given)
        shown = ", ".join(f"`{label}`" for label in (labels[0] if labels else ()))
        yield name, f"| `{name}` | {call.func.attr} | {shown} | {meaning} |"


def _commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if not inner.hidden:
            yield from _commands(f"{words} {name}", inner)


def _parameter(item: Any) -> str:
    names = item.name.upper() if item.param_type_name == "argument" else ", ".join(item.opts)
    value = item.default
    shown = "" if value is None or callable(value) or value in ("", False) else f"`{value}`"
    meaning = getattr(item, "help", "") or ""
    if item.envvar:
        meaning += f" Else `{item.envvar}` of the environment."
    return f"| `{names}` | {shown} | {meaning} |"


def _sentence(thing: type) -> str:
    return " ".join((inspect.getdoc(thing) or "").split())


def _type(kind: Any) -> str:
    names = {str: "text", int: "integer", float: "number", bool: "true or false"}
    if hasattr(kind, "__metadata__"):
        kind = kind.__origin__
    if kind in names:
        return names[kind]
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in kind.__args__)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(f"`{member.value}`" for member in kind)
    if isinstance(kind, type):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    arguments = getattr(kind, "__args__", ())
    return f"list of {_type(arguments[0])}" if arguments else str(kind)


def _default(row: msgspec.structs.FieldInfo) -> str:
    value = row.default
    if value is msgspec.NODEFAULT and row.default_factory is not msgspec.NODEFAULT:
        value = row.default_factory()
    if value is msgspec.NODEFAULT:
        return "required"
    return "" if isinstance(value, msgspec.Struct) else f"`{json.dumps(value, default=str)}`"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
