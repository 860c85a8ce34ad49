"""What an upstream promises about data, against what their class asks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiffin.config.load import load_text
from tiffin.config.remote import RemoteModel
from tiffin.config.terms import DataTerms, unfit
from tiffin.errors import ConfigInvalid

CLASSES = ["public", "internal", "confidential", "restricted"]
OWN = {"confidential": DataTerms(retains_days=7, trains=False)}


def refused(terms: dict[str, DataTerms], **said: object) -> list[str]:
    """The classes that a model with these terms mustn't get."""
    model = RemoteModel(url="https://h/v1", **said)  # type: ignore[arg-type]
    return [name for name, why in unfit(model, terms) if why]


@pytest.mark.parametrize(
    ("said", "classes"),
    [
        ({}, []),
        ({"trains": False, "retains_days": 0}, []),
        ({"trains": True}, ["internal", "confidential", "restricted"]),
        ({"retains_days": 30}, ["restricted"]),
        ({"retains_days": 31}, ["confidential", "restricted"]),
    ],
    ids=str,
)
def test_what_it_says_counts_by_the_usual_rules(
    said: dict[str, object], classes: list[str]
) -> None:
    assert refused({}, **said) == classes


@pytest.mark.parametrize(
    ("said", "classes"),
    [
        ({}, ["confidential"]),
        ({"retains_days": 7}, ["confidential", "restricted"]),
        ({"trains": False}, ["confidential"]),
        ({"trains": False, "retains_days": 7}, ["restricted"]),
        ({"trains": False, "retains_days": 8}, ["confidential", "restricted"]),
    ],
    ids=str,
)
def test_a_rule_of_ones_own_asks_and_silence_is_a_no(
    said: dict[str, object], classes: list[str]
) -> None:
    assert refused(OWN, **said) == classes


@given(
    st.sampled_from(CLASSES),
    st.integers(-1, 90),
    st.booleans(),
    st.none() | st.integers(0, 90),
    st.none() | st.booleans(),
)
def test_nobody_gets_data_on_terms_that_their_class_forbids(
    name: str, most: int, may_train: bool, kept: int | None, trains: bool | None
) -> None:
    terms = {name: DataTerms(retains_days=most, trains=may_train)}
    kept_too_long = most >= 0 and (kept is None or kept > most)
    learns = not may_train and trains is not False
    found = name in refused(terms, retains_days=kept, trains=trains)
    assert found is (kept_too_long or learns)


def test_a_class_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigInvalid, match="did you mean restricted"):
        load_text(b"[terms.restrictd]\n", {})


def test_a_key_stays_where_its_tenant_does() -> None:
    text = b"[tenants.t]\nregion='in'\n[tenants.t.keys.k]\nkey_env='A'\nregion='us'\n"
    with pytest.raises(ConfigInvalid, match="nothing is in both") as told:
        load_text(text, {})
    assert told.value.where == "tenants.t.keys.k.region"
