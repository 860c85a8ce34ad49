"""The OpenAPI 3.1 document of control's pages, made from the types that they take and answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

import msgspec

from tiffin.dialects.openai.openapi import JSON, PLAIN, operation
from tiffin.dialects.openai.openapi_schemas import reply_schemas

Endpoint = tuple[str, str]
"""A method and a path, whose variable parts are in braces."""

DESCRIPTION: Final = """\
What operates a server, for keys with `admin = true`: the same that `tiffin status`, \
`tiffin apply` and their like ask. Wrong requests get the `Error` object that the public interface \
has."""

_UNTOLD: Final = "Something that an operator may ask or do"


@dataclass(frozen=True, slots=True)
class Told:
    """What a page does in a sentence, and the types of its answer (None: text), of its query's
    parameters, and of its body by content type."""

    summary: str
    answer: Any = None
    query: type[msgspec.Struct] | None = None
    takes: Mapping[str, Any] = field(default_factory=dict)


def document(endpoints: Iterable[Endpoint], told: Mapping[Endpoint, Told]) -> bytes:
    """The document of these endpoints as JSON; one of which nothing is told is in it as well.

    What isn't below `/admin` is in the document of the public port.
    """
    paths: dict[str, dict[str, Any]] = {}
    types = [kind for one in told.values() for kind in (one.answer, *one.takes.values()) if kind]
    schemas, parts = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    shown = dict(zip(map(_mark, types), schemas, strict=True))
    for method, path in endpoints:
        if not path.startswith("/admin/"):
            continue
        one = told.get((method, path), Told(_UNTOLD))
        paths.setdefault(path, {})[method.lower()] = _page(method, path, one, shown)
    tree = {
        "openapi": "3.1.0",
        "info": {
            "title": "Tiffin's administration",
            "version": version("tiffin"),
            "description": DESCRIPTION,
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**parts, "Error": reply_schemas()["Error"]},
        },
    }
    return msgspec.json.format(msgspec.json.encode(tree), indent=2)


def _page(method: str, path: str, told: Told, shown: Mapping[str, Any]) -> dict[str, Any]:
    answer = {JSON: {"type": "object"}}
    if told.answer is not None:
        answer = {JSON: shown[_mark(told.answer)]}
    elif told.summary != _UNTOLD:
        answer = {PLAIN: {"type": "string"}}
    words = [word.strip("{}") for word in path.split("/") if word]
    name = "".join([method.lower(), *(word.capitalize() for word in words)]).replace(".", "_")
    page = operation(name, told.summary, answer)
    parameters = [_in_path(word[1:-1]) for word in path.split("/") if word.startswith("{")]
    parameters += [_in_query(one) for one in _fields(told.query)]
    if parameters:
        page["parameters"] = parameters
    if told.takes:
        content = {kind: {"schema": shown[_mark(what)]} for kind, what in told.takes.items()}
        page["requestBody"] = {"required": True, "content": content}
    return page


def _mark(kind: Any) -> str:
    return repr(kind)


def _in_path(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 256}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _fields(query: type[msgspec.Struct] | None) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(query) if query is not None else ()


def _in_query(parameter: msgspec.structs.FieldInfo) -> dict[str, Any]:
    schema = {**msgspec.json.schema(parameter.type), "default": parameter.default}
    return {"name": parameter.encode_name, "in": "query", "schema": schema}
