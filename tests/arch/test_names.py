"""Names say what a thing is; every module and public name says what it promises."""

import ast
import asyncio
import re
from collections.abc import Iterator

import pytest

from tests.arch.tree import ROOT, Module, modules

BANNED = {
    "utils",
    "helpers",
    "common",
    "base",
    "misc",
    "manager",
    "handler",
    "service",
    "data",
    "info",
}
BANNED |= {word.removesuffix("s") for word in BANNED}

# Named by the framework that calls them, and documented there.
CALLBACKS = {*dir(asyncio.Protocol), *dir(asyncio.BufferedProtocol)}
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def words(name: str) -> set[str]:
    """The lower-case words of a snake_case or CamelCase name."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


def classes(module: Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(module.syntax) if isinstance(node, ast.ClassDef))


def public(module: Module) -> Iterator[tuple[str, Definition]]:
    """The public classes, functions and methods of a module, with their dotted names.

    What a private class has is private.
    """
    for node in module.syntax.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                yield from (
                    (f"{node.name}.{item.name}", item)
                    for item in node.body
                    if isinstance(item, Definition) and not item.name.startswith(("_", "on_"))
                    if item.name not in CALLBACKS
                )


@pytest.mark.parametrize("module", modules(), ids=str)
def test_no_name_is_a_drawer_for_anything(module: Module) -> None:
    assert module.name.rpartition(".")[2] not in BANNED
    assert [node.name for node in classes(module) if node.name.lower() in BANNED] == []
    suffixed = [
        node.name for node in classes(module) if words(node.name) & {"manager", "util", "helper"}
    ]
    assert suffixed == []


@pytest.mark.parametrize("module", modules(), ids=str)
def test_modules_and_public_names_say_what_they_promise(module: Module) -> None:
    if module.path.name == "__init__.py":
        assert not module.syntax.body or ast.get_docstring(module.syntax)
        return
    assert ast.get_docstring(module.syntax), "the module has no docstring"
    silent = [name for name, node in public(module) if not ast.get_docstring(node)]
    assert silent == []


@pytest.mark.parametrize("module", modules(), ids=str)
def test_init_files_are_empty(module: Module) -> None:
    if module.path.name == "__init__.py" and module.name != "tiffin":
        assert module.path.read_text() == ""


@pytest.mark.parametrize("module", modules(), ids=str)
def test_no_module_holds_mutable_state(module: Module) -> None:
    """A container at the top of a module is a constant table, and is named as one."""
    containers = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    state = []
    for node in module.syntax.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, containers):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            state += [t.id for t in targets if isinstance(t, ast.Name) and t.id != t.id.upper()]
    assert state == []


def test_glossary_has_the_words_that_the_code_is_made_of() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text()
    defined = {word.lower() for word in re.findall(r"^\*\*([^*]+)\*\*", glossary, re.MULTILINE)}
    spoken = """
        account, admission, alias, artifact, attempt, budget, commit point, control, deadline,
        deployment, dialect, drain, engine, entry, epoch, gateway, guard, journal, key, lane, model,
        outcome, permit, plan, principal, replica, revision, route, runtime, slot, snapshot,
        supervisor, target, tenant, upstream, usage, walk
    """
    assert {word.strip() for word in spoken.split(",")} - defined == set()
    headings = re.findall(r"^\*\*([^*]+)\*\*", glossary, re.MULTILINE)
    assert headings == sorted(headings, key=str.lower), "the glossary is in order of the alphabet"
