"""`[models.NAME.revisions.LABEL]`: other revisions of a model, each served as `NAME@LABEL`.

A section there holds the settings that differ from `[models.NAME]`.
"""

from collections.abc import Iterator
from typing import Final

from tiffin.config import shape
from tiffin.config.schema import Tree
from tiffin.types.revisions import AT, DIGEST, name_of

REVISIONS: Final = "revisions"


def section_of(name: str) -> str:
    """The path of the section that a model of this name comes from."""
    model, at, label = name.partition(AT)
    return f"models.{model}.{REVISIONS}.{label}" if at else f"models.{model}"


def misfits(tree: Tree) -> Iterator[shape.Problem]:
    """Everything that revisions have and mustn't, in a tree of a right shape but for that."""
    kind = shape.kind_of_models()
    for name, section in tree.get("models", {}).items():
        for label, differing in section.get(REVISIONS, {}).items():
            where = section_of(name_of(name, label))
            if DIGEST.fullmatch(label):
                yield shape.Problem(where, "a label may not look like a digest")
            if REVISIONS in differing:
                yield shape.Problem(shape.join(where, REVISIONS), "a revision has none of its own")
            yield from shape.misfits(kind, _merged(section, differing), where)


def expanded(tree: Tree) -> Tree:
    """The tree, with every revision as a model of its own."""
    models: dict[str, Tree] = {}
    for name, section in tree.get("models", {}).items():
        models[name] = _merged(section, {})
        for label, differing in section.get(REVISIONS, {}).items():
            models[name_of(name, label)] = _merged(section, differing)
    return {**tree, "models": models}


def _merged(section: Tree, differing: Tree) -> Tree:
    """Settings that are sections themselves, such as files by name, are merged one level deep."""
    merged = {name: value for name, value in section.items() if name != REVISIONS}
    for name, value in differing.items():
        before = merged.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[name] = {**before, **value}
        else:
            merged[name] = value
    return merged
