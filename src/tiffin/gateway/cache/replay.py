"""The cache stage of the walk: replay a kept answer, or keep the one that comes."""

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from tiffin.gateway.account import Accounts
from tiffin.gateway.cache.exact import MAX_ENTRY_BYTES, CachedReply, ExactCache, cache_key
from tiffin.gateway.respond import Delivery, send_kept
from tiffin.gateway.run import Run

HIT = (b"x-tiffin-cache", b"hit")
NOT_CACHED: AbstractContextManager[bool] = nullcontext(enter_result=False)


class ReplayCache:
    """Exact answers, for plans that declare `cache_ttl_s`."""

    def __init__(self, accounts: Accounts, entries: ExactCache | None = None) -> None:
        self._accounts = accounts
        self._entries = entries or ExactCache()

    def look_up(self, run: Run, delivery: Delivery) -> AbstractContextManager[bool]:
        """A context: entering replays a kept answer and says so; leaving keeps a new one."""
        if not run.plan.cache_ttl_s:
            return NOT_CACHED
        return LookUp(self._accounts, self._entries, run, delivery)


class LookUp:
    """One request's look-up."""

    __slots__ = ("_accounts", "_delivery", "_entries", "_hit", "_key", "_run")

    def __init__(
        self, accounts: Accounts, entries: ExactCache, run: Run, delivery: Delivery
    ) -> None:
        self._accounts = accounts
        self._entries = entries
        self._run = run
        self._delivery = delivery
        self._key = b""
        self._hit = False

    def __enter__(self) -> bool:
        run, delivery = self._run, self._delivery
        asked = run.asked
        if not asked.cached_as:
            return False
        shown = f"{asked.operation}+{asked.cached_as}"
        self._key = cache_key(run.tenant, run.plan, shown, asked.canonical())
        entry = self._entries.get(self._key, self._accounts.clock.monotonic())
        account = delivery.account
        account.cache = "miss" if entry is None else "hit"
        self._accounts.cache.add((run.plan.name, account.cache))
        if entry is None:
            delivery.headers.append((b"x-tiffin-cache", b"miss"))
            delivery.collect(MAX_ENTRY_BYTES)
            return False
        self._hit = True
        account.charge.free(run.plan.targets[0].price)
        send_kept(delivery, entry, HIT)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        keep = self._delivery.keep
        if error is None and keep and not self._hit:
            expires = self._accounts.clock.monotonic() + self._run.plan.cache_ttl_s
            reply = CachedReply(
                body=bytes(keep),
                headers=self._delivery.kept_headers or [],
                streaming=self._run.asked.streaming,
                expires=expires,
            )
            self._entries.put(self._key, reply)
