"""Endpoints of clouds that sign: their addresses from regions and projects, their keys by name."""

import re
from typing import Any, Final

from tiffin.adapters.importers.litellm.reading import Section
from tiffin.adapters.importers.litellm.secret_names import Secrets, referred

PLACE: Final = "https://set-this-address.invalid/v1"
_AWS: Final = (
    ("aws_access_key_id", "AWS_ACCESS_KEY_ID"),
    ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
    ("aws_session_token", "AWS_SESSION_TOKEN"),
)
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9:.-]{0,62}")


def cloud_settings(
    name: str, settings: dict[str, Any], params: Section, secrets: Secrets
) -> dict[str, Any]:
    """What the settings of a model at such an endpoint have beside those of others."""
    if settings.get("profile") == "sagemaker":
        return _sagemaker(name, settings, params, secrets)
    if settings.get("profile") == "vertex":
        return _vertex(name, settings, params, secrets)
    return {}


def _sagemaker(
    name: str, settings: dict[str, Any], params: Section, secrets: Secrets
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    region = _word("aws_region_name", params, secrets)
    if not settings.get("url"):
        found["url"] = f"https://runtime.sagemaker.{region or 'set-this-region'}.amazonaws.com"
        _want(region, name, params)
    told = {ours: params.text(theirs) for theirs, ours in _AWS}
    usual = all(not value or referred(value) == ours for ours, value in told.items())
    if usual:
        return found
    variable = secrets.fresh(f"{name}_AWS_KEYS")
    params.report.to_do(
        params.at(_AWS[0][0]),
        f"put ACCESS_KEY_ID:SECRET_ACCESS_KEY, and :SESSION_TOKEN, into the variable {variable}",
    )
    return {**found, "key_env": variable}


def _vertex(
    name: str, settings: dict[str, Any], params: Section, secrets: Secrets
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    model = settings["model"]
    if "/" not in model:
        found["model"] = f"google/{model}"
    project = _word("vertex_project", params, secrets) or _word(
        "vertex_ai_project", params, secrets
    )
    place = _word("vertex_location", params, secrets) or _word(
        "vertex_ai_location", params, secrets
    )
    if not settings.get("url"):
        host = "aiplatform" if place == "global" else f"{place}-aiplatform"
        below = f"projects/{project}/locations/{place}/endpoints/openapi"
        found["url"] = f"https://{host}.googleapis.com/v1/{below}" if project and place else PLACE
        _want(project and place, name, params)
    credentials = params.text("vertex_credentials")
    at = params.at("vertex_credentials")
    if credentials.startswith(("/", "~/")):
        found["key_file"] = credentials
    elif credentials:
        found["key_env"] = secrets.variable(credentials, at, f"{name}_GOOGLE_CREDENTIALS")
        params.report.different(at, "the variable holds the file's content here, not its path")
    return found


def _want(known: str, name: str, params: Section) -> None:
    if not known:
        params.report.to_do(params.where, f"give [models.{name}] its address as url")


def _word(field: str, params: Section, secrets: Secrets) -> str:
    """A part of an address, empty where it can't be one."""
    value = secrets.plain(params.text(field), params.at(field))
    if value and not _WORD.fullmatch(value):
        params.report.dropped(params.at(field), "expected a name")
        return ""
    return value
