"""What a remote model's section must keep to: an address, a profile that there is, one key."""

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from tiffin.config.hosts import has_host
from tiffin.config.references import broken_reference
from tiffin.config.remote import RemoteModel
from tiffin.config.shape import Problem, nearest
from tiffin.config.terms import USUAL, DataTerms
from tiffin.types.profiles import PROFILES, profile_of

_CLOUDS = re.compile(r"[a-z]{2,}(-[a-z]+)*-[a-z]+-?\d{1,2}")
"""Names of regions as AWS and Google give them: ap-south-1, asia-south1."""


def broken_remote(model: RemoteModel, where: str) -> Iterator[Problem]:
    """Every rule that a remote model's section breaks."""
    yield from _profile(model, where)
    yield from _url(model.address, f"{where}.url")
    yield from _region(model, where)
    yield from broken_reference(model, where, needed=False)
    for number, key in enumerate(model.keys):
        yield from broken_reference(key, f"{where}.keys[{number}]", needed=True)
    if model.keys and (model.key_env or model.key_file or model.key_command):
        yield Problem(f"{where}.keys", "give one key beside it, or several here, not both")


def broken_terms(terms: Mapping[str, DataTerms]) -> Iterator[Problem]:
    """Sections of classes that there aren't."""
    for name in terms:
        if name not in USUAL:
            known = ", ".join(USUAL)
            hint = nearest(name, USUAL)
            yield Problem(f"terms.{name}", f"there is no class of data of this name{hint}: {known}")


def _profile(model: RemoteModel, where: str) -> Iterator[Problem]:
    name = model.profile
    if name and name not in PROFILES:
        yield Problem(
            f"{where}.profile",
            f'there is no profile "{name}"{nearest(name, PROFILES)}; known: {", ".join(PROFILES)}',
        )
    if name and model.protocol != "openai":
        yield Problem(f"{where}.profile", f'profiles aren\'t for protocol = "{model.protocol}"')
    if model.api_version and not profile_of(name).version:
        versioned = ", ".join(name for name, one in PROFILES.items() if one.version)
        yield Problem(f"{where}.api_version", f"only profiles with versions have one: {versioned}")


def _region(model: RemoteModel, where: str) -> Iterator[Problem]:
    """A region that is another than the address's, and none where calls are signed for one.

    Names that no cloud gives are the operator's own, for whatever region there is.
    """
    profile = profile_of(model.profile)
    named = profile.regions(model.address)
    if len(named) > 1:
        yield Problem(f"{where}.url", f"it names several regions: {', '.join(named)}")
    elif named and model.region not in ("", *named) and _CLOUDS.fullmatch(model.region):
        yield Problem(f"{where}.region", f'its address says "{named[0]}"')
    elif profile.signs == "aws" and not named and not model.region:
        yield Problem(
            f"{where}.region", "missing: the address doesn't say it, and calls are signed"
        )


def _url(url: str, where: str) -> Iterator[Problem]:
    try:
        parts = urlsplit(url)
        whole = all("!" <= letter <= "~" for letter in url)  # as it goes into a request's head
        usable = whole and parts.scheme in ("http", "https") and has_host(parts)
    except ValueError:
        yield Problem(where, "expected an address such as https://api.example.com/v1")
        return
    if not usable:
        yield Problem(where, "expected an address such as https://api.example.com/v1")
    elif parts.username or parts.password or parts.query or parts.fragment:
        yield Problem(where, "no user, password or query here; the key goes to key_env or key_file")
