"""Whether an answer may be given again, and what tells it from all others. Pure."""

from hashlib import sha256

from tiffin.gateway.guard.personal_data import PersonalData
from tiffin.gateway.run import Run
from tiffin.ports.exchange import Exchange
from tiffin.types.residency import holds

_PERSONAL = PersonalData()


def may_keep(run: Run, exchange: Exchange) -> bool:
    """Whether anything may be looked up or kept for this request, by its plan's rules."""
    asked, rules = run.asked, run.plan.cache
    if not asked.cached_as or (asked.offers_tools and not rules.tools):
        return False
    if not holds(rules.data_class, run.data_class) or "no-store" in directives(exchange):
        return False
    return rules.personal_data or _PERSONAL.check_input(asked.pieces()) is None


def wants_fresh(exchange: Exchange) -> bool:
    """Whether the client wants an answer that is made now (RFC 9111, 5.2.1)."""
    said = directives(exchange)
    return "no-cache" in said or "max-age=0" in said


def directives(exchange: Exchange) -> list[str]:
    """What the client says of caches."""
    said = exchange.header(b"cache-control")
    if said is None:
        return []
    return [word.strip().lower() for word in said.decode("latin-1").split(",")]


def cache_key(run: Run, endpoint: str, request: bytes) -> bytes:
    """The key of a request's answer: tenant, endpoint, the plan's identity (which covers models'
    revisions and the guard), the operator's version, the canonical request."""
    plan = run.plan
    named = (run.tenant, endpoint, plan.name, plan.identity, plan.cache.version)
    digest = sha256()
    for part in (*(name.encode() for name in named), request):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()
