"""Schemas that no finite answer satisfies: what is required leads back to itself for ever.

A grammar of such a schema is valid, and an answer under it only ends where its tokens do. So the
places that can end are found from the leaves upwards; a place that an answer may come to, and that
isn't among them, is told. Nothing that can end is refused.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Schema = dict[str, Any]
Follow = Callable[[str], Any]
Group = list[Any]


def endless(schema: Schema, follow: Follow) -> str:
    """The path (`#/properties/a`) of what leads back to itself without an end, or empty.

    `follow` finds what a reference leads to, None where it leads nowhere.
    """
    places = _places(schema, follow)
    unmet: dict[int, int] = {}
    waits: dict[int, list[tuple[int, int]]] = {}
    ended: deque[int] = deque()
    for key, (_, node) in places.items():
        groups = _groups(node, follow)
        unmet[key] = len(groups)
        for number, group in enumerate(groups):
            for one in group:
                waits.setdefault(id(one), []).append((key, number))
        if not groups:
            ended.append(key)
    met: set[tuple[int, int]] = set()
    while ended:
        for waiting in waits.get(ended.popleft(), ()):
            if waiting not in met:
                met.add(waiting)
                unmet[waiting[0]] -= 1
                if not unmet[waiting[0]]:
                    ended.append(waiting[0])
    left = [path for key, (path, node) in places.items() if unmet[key] and "$ref" in node]
    return min(left, key=len, default="")


def _places(schema: Schema, follow: Follow) -> dict[int, tuple[str, Schema]]:
    """Every schema that an answer may come to, by identity, with the first way that leads there."""
    found: dict[int, tuple[str, Schema]] = {}
    waiting: deque[tuple[str, Any]] = deque([("#", schema)])
    while waiting:
        path, node = waiting.popleft()
        if isinstance(node, dict) and id(node) not in found:
            found[id(node)] = path, node
            waiting += _inside(path, node, follow)
    return found


def _inside(path: str, node: Schema, follow: Follow) -> Iterator[tuple[str, Any]]:
    for name in ("properties", "patternProperties"):
        for key, one in node.get(name, {}).items():
            yield f"{path}/{name}/{key}", one
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for at, one in enumerate(node.get(name, ())):
            yield f"{path}/{name}/{at}", one
    for name in ("items", "additionalProperties"):
        yield f"{path}/{name}", node.get(name)
    if "$ref" in node:
        yield node["$ref"], follow(node["$ref"])


def _groups(node: Schema, follow: Follow) -> list[Group]:
    """What must end so that this does: of each group one."""
    if "const" in node or "enum" in node:
        return []
    groups: list[Group] = [node[name] for name in ("anyOf", "oneOf") if name in node]
    groups += _alone(node.get("allOf", ()))
    if "$ref" in node:
        groups += _alone([follow(node["$ref"])])
    kinds = node.get("type")
    if kinds in ("object", ["object"]):
        groups += _of_object(node)
    elif kinds in ("array", ["array"]):
        least, first = node.get("minItems", 0), node.get("prefixItems", [])
        groups += _alone(first[:least])
        if least > len(first):
            groups += _alone([node.get("items")])
    # What isn't an object, like `true`, ends.
    return [group for group in groups if all(isinstance(one, dict) for one in group)]


def _of_object(node: Schema) -> Iterator[Group]:
    properties, rest = node.get("properties", {}), node.get("additionalProperties")
    yield from _alone(properties.get(name, rest) for name in node.get("required", ()))
    if node.get("minProperties", 0) > 0:
        yield [*properties.values(), *node.get("patternProperties", {}).values(), rest]


def _alone(schemas: Iterable[Any]) -> Iterator[Group]:
    return ([one] for one in schemas)
