"""Which columns a scikit-learn model's parts take: by place, and which of them are texts."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np


def parts(model: Any) -> Iterator[Any]:
    """The estimators inside one, of pipelines, columns, ensembles and searches; depth first."""
    yield model
    for _, step in getattr(model, "steps", ()):
        if step is not None and step != "passthrough":
            yield from parts(step)
    for _, step, _ in getattr(model, "transformers_", None) or ():
        if not isinstance(step, str):
            yield from parts(step)
    inner = getattr(model, "estimators_", None)
    if inner is not None:
        for one in np.ravel(np.asarray(inner, dtype=object)):
            yield from parts(one)
    if (best := getattr(model, "best_estimator_", None)) is not None:
        yield from parts(best)


def by_place(model: Any) -> tuple[Any, bool]:
    """The model, or a copy that selects by place the columns that the model selects by name.

    The second says which; a copy takes arrays, where the model took frames alone.
    """
    if not any(_selects_by_name(part) for part in parts(model)):
        return model, False
    placed = copy.deepcopy(model)
    for part in parts(placed):
        places = getattr(part, "_transformer_to_input_indices", {})
        if _selects_by_name(part):
            part.transformers_ = [
                (name, step, places.get(name, columns))
                for name, step, columns in part.transformers_
            ]
        vars(part).pop("feature_names_in_", None)
    return placed, True


def text_columns(model: Any) -> frozenset[int]:
    """The places of columns whose values are texts, as the encoders of categories know them."""
    found: set[int] = set()
    for part in parts(model):
        for _, step, columns in getattr(part, "transformers_", None) or ():
            places = [int(one) for one in columns] if isinstance(columns, list) else []
            for inner in parts(step) if not isinstance(step, str) else ():
                found |= _texts(inner, places)
    if not found:
        for part in parts(model):
            found |= _texts(part, list(range(getattr(model, "n_features_in_", 0))))
    return frozenset(found)


def _texts(encoder: Any, places: list[int]) -> set[int]:
    categories = getattr(encoder, "categories_", None)
    if not isinstance(categories, list) or len(categories) != len(places):
        return set()
    return {
        place
        for place, known in zip(places, categories, strict=True)
        if any(isinstance(one, str) for one in np.asarray(known, object).tolist())
    }


def _selects_by_name(part: Any) -> bool:
    taken = [columns for _, _, columns in getattr(part, "transformers_", None) or ()]
    return any(
        isinstance(one, str)
        for columns in taken
        for one in (columns if isinstance(columns, list | tuple) else [columns])
    )
