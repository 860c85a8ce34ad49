"""The master key and virtual keys as keys of a tenant: by variable or by hash, never in clear."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from tiffin.adapters.importers.litellm.names import Names, fitting
from tiffin.adapters.importers.litellm.reading import Section
from tiffin.adapters.importers.litellm.report import Report
from tiffin.adapters.importers.litellm.secret_names import Secrets, referred

TENANT: Final = "litellm"
MOST_KEYS: Final = 5_000
SHORTEST: Final = 24
"""A shorter key could be found by its hash."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_EVERYTHING: Final = frozenset({"all-proxy-models", "all-team-models", "*"})
_KNOWN: Final = (
    *("key_name", "spend", "user_id", "metadata", "permissions", "aliases", "config", "created_at"),
    *(
        "updated_at",
        "created_by",
        "updated_by",
        "soft_budget_cooldown",
        "budget_reset_at",
        "org_id",
    ),
    *("model_spend", "last_active", "rotation_count", "object_permission", "organization_id"),
)
"""What a key has there that says nothing of what it may do, or is a count of the past."""

_BOUNDS: Final = ("rpm_limit", "tpm_limit", "max_parallel_requests", "max_budget")

PERIODS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("1d", "24h", "1day", "daily"), "day"),
    **dict.fromkeys(("30d", "31d", "1mo", "1month", "monthly"), "month"),
}


def master_key(general: Section, secrets: Secrets) -> dict[str, Any]:
    """The section of the key that may do everything."""
    report, where = general.report, general.at("master_key")
    said = general.text("master_key")
    if not said:
        report.to_do(where, "there was none: put a new key into the variable TIFFIN_API_KEY")
        return {"key_env": "TIFFIN_API_KEY", "admin": True}
    if not referred(said) and len(said) >= SHORTEST:
        report.mapped(where, "by its sha256, so it stays good")
        return {"key_sha256": sha256(said.encode()).hexdigest(), "admin": True}
    variable = secrets.variable(said, where, "LITELLM_MASTER_KEY") or "LITELLM_MASTER_KEY"
    report.mapped(where, f"key_env = {variable}")
    return {"key_env": variable, "admin": True}


class VirtualKeys:
    """Keys of LiteLLM's `/key/list`, which its database has by their sha256, as we do.

    `public` are the models that there are here by their names there; `priced` is whether money can
    be counted.
    """

    def __init__(self, public: Mapping[str, str], report: Report, *, priced: bool) -> None:
        self._public = public
        self._report = report
        self._priced = priced
        self._names = Names()
        self._digests: set[str] = set()
        self.keys: dict[str, Any] = {}
        self.projects: dict[str, Any] = {}
        self._names.give("master")

    def add(self, tree: Any, now: datetime) -> None:
        """Take all keys of a listing, a list or an object with `keys`."""
        found = tree.get("keys") if isinstance(tree, dict) else tree
        if not isinstance(found, list):
            self._report.dropped("keys", "expected the answer of /key/list?return_full_object=true")
            return
        if len(found) > MOST_KEYS:
            message = f"the first {MOST_KEYS} of {len(found)}; others through the admin API"
            self._report.dropped("keys", message)
        for at, one in enumerate(found[:MOST_KEYS]):
            self._key(Section(one, f"keys[{at}]", self._report), now)
        if self.keys or self.projects:
            self._report.to_do("keys", "what was spent there until now isn't known here")

    def _key(self, one: Section, now: datetime) -> None:
        alias = one.text("key_alias") or one.text("key_name")
        digest = _digest(one.text("token"))
        expires = _moment(one.raw("expires"))
        models = self._models(one)
        reason = ""
        if not digest or digest in self._digests:
            reason = "it has no token that is a sha256, or one that was there already"
        elif expires is not None and expires <= now:
            reason = "it has expired"
        elif one.flag("blocked") or any(one.raw(name) == 0 for name in _BOUNDS):
            reason = "it is blocked, or a limit of 0 lets nothing through"
        elif models is None:
            reason = "none of its models is here, and without a list it would be for all"
        if reason:
            self._report.dropped(one.where, f"the key '{fitting(alias)}': {reason}")
            return
        self._digests.add(digest)
        name = self._names.give(alias or f"key-{digest[:8]}")
        key: dict[str, Any] = {"key_sha256": digest}
        key |= {"models": models} if models else {}
        key |= {"expires": expires} if expires is not None else {}
        key |= self._bounds(one)
        team = one.text("team_id")
        home = self.keys
        if team:
            home = self.projects.setdefault(fitting(team), {"keys": {}})["keys"]
        home[name] = key
        for known in _KNOWN:
            one.raw(known)
        one.leave({"allowed_routes": "endpoints of a key say that: endpoints = [...]"})

    def _models(self, one: Section) -> list[str] | None:
        """The models that it is for, empty for all; None where it would be for none."""
        wanted = [name for _, name in one.items("models") if isinstance(name, str)]
        if not wanted or _EVERYTHING & set(wanted):
            return []
        found = [self._public[name] for name in wanted if name in self._public]
        if len(found) < len(wanted):
            self._report.dropped(one.at("models"), "those of its models that aren't here")
        return list(dict.fromkeys(found)) or None

    def _bounds(self, one: Section) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        if requests := int(one.number("rpm_limit")):
            limits["requests_per_minute"] = requests
            limits["burst"] = requests
        if parallel := int(one.number("max_parallel_requests")):
            limits["concurrency"] = parallel
        if tokens := int(one.number("tpm_limit")):
            limits["rules"] = [{"of": "tokens", "per": "minute", "amount": tokens}]
        bounds: dict[str, Any] = {"limits": limits} if limits else {}
        budget = budget_of(one, priced=self._priced)
        return bounds | ({"budgets": {"imported": budget}} if budget else {})


def budget_of(section: Section, *, priced: bool) -> dict[str, Any]:
    """The budget that `max_budget` and `budget_duration` are, empty where there is none."""
    amount, said = section.number("max_budget"), section.text("budget_duration")
    if not amount:
        return {}
    report, where = section.report, section.at("max_budget")
    period = PERIODS.get(said.lower())
    if period is None:
        report.dropped(where, "budgets here are for a calendar's day or month, not for this time")
        return {}
    if not priced:
        report.dropped(
            where, "money can't be counted while models have no price: [[prices.models]]"
        )
        return {}
    report.different(where, f"a hard budget of the calendar's {period}, in UTC")
    return {"amount": f"{amount:.6f}".rstrip("0").rstrip("."), "per": period, "hard": True}


def _digest(token: str) -> str:
    if token.startswith("sk-"):
        return sha256(token.encode()).hexdigest()
    return token if _DIGEST.fullmatch(token) else ""


def _moment(said: Any) -> datetime | None:
    """When a key ends, None for never; what can't be read has ended."""
    if said is None:
        return None
    try:
        found = said if isinstance(said, datetime) else datetime.fromisoformat(str(said))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
