"""Watches keys for requests that are odd, in bounded room: tells of them, and throttles where told.

It refuses nothing but what a throttle does, and what it can't see it lets pass: it is no guard.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from tiffin.dialects.dialect import Asked
from tiffin.errors import RateLimited
from tiffin.gateway.account import Account
from tiffin.gateway.anomalies.sight import Sight, noise, sight
from tiffin.gateway.anomalies.watched import Watched
from tiffin.ports.clock import Clock
from tiffin.telemetry import log
from tiffin.telemetry.metrics import Meter
from tiffin.types.anomalies import Anomalies, Oddity, Signal
from tiffin.types.snapshot import Principal

MAX_KEYS: Final = 100_000
MAX_TOLD: Final = 1_000
EPISODE_S: Final = 3600.0
"""What isn't seen for so long has ended: seen again, it is told again."""
WATCHED: Final = frozenset({"chat", "completion", "response"})

Key = tuple[str, str]
"""A tenant and its key."""


@dataclass(slots=True)
class Seen:
    """A request that runs: what was seen of it, and how long its answer may be (0: any length)."""

    key: Key
    sight: Sight
    says: Anomalies
    account: Account
    most: int


@dataclass(slots=True)
class Throttle:
    """Until when a key is throttled, when its next request may come, and why. Monotonic seconds."""

    until: float
    next_at: float
    signal: Signal


@dataclass(slots=True)
class Episode:
    """A signal of a key since `since_ns`, last given at the monotonic second `last`."""

    since_ns: int
    last: float
    count: int = 0
    until_ns: int = 0


class Watch:
    """All keys that came lately, the one that came longest ago making room."""

    def __init__(self, clock: Clock, meter: Meter, most: int = MAX_KEYS) -> None:
        self._clock = clock
        self._most = most
        self._keys: OrderedDict[Key, Watched] = OrderedDict()
        self._throttles: OrderedDict[Key, Throttle] = OrderedDict()
        self._episodes: OrderedDict[tuple[str, str, Signal], Episode] = OrderedDict()
        self._signals = meter.counter(
            "tiffin_anomalies_total", "Requests that were odd for their key", ("signal",)
        )
        self._refused = meter.counter(
            "tiffin_throttled_total", "Requests refused since their key is throttled", ("signal",)
        )

    def admit(self, principal: Principal, says: Anomalies) -> None:
        """Raise `RateLimited` where a key is throttled and it isn't its turn."""
        throttle = self._throttles.get((principal.tenant, principal.key))
        if throttle is None:
            return
        now = self._clock.monotonic()
        if now >= throttle.until or says.action != "throttle":
            del self._throttles[principal.tenant, principal.key]
        elif now < throttle.next_at:
            self._refused.add((throttle.signal,))
            raise RateLimited(
                f"the key '{principal.tenant}/{principal.key}' is throttled to"
                f" {says.throttle_per_minute} requests a minute for {throttle.until - now:.0f} s:"
                f" its requests are odd ({throttle.signal}); ask the operator, who can exempt you",
                retry_after=min(throttle.next_at, throttle.until) - now,
            )
        else:
            throttle.next_at = now + 60 / says.throttle_per_minute

    def asked(
        self, principal: Principal, asked: Asked, account: Account, says: Anomalies
    ) -> Seen | None:
        """Look at a request that was read; None where nothing is to be learnt of its answer."""
        if asked.operation not in WATCHED or principal.tenant in says.exempt:
            return None
        seen = sight(asked.pieces())
        if seen is None:
            return None
        key = (principal.tenant, principal.key)
        now = self._clock.monotonic()
        signal = self._watched(key, now).asked(seen, says, now)
        if signal is not None:
            self._note(key, signal, says, now)
        return Seen(key, seen, says, account, asked.extent().answer_tokens or 0)

    def answered(self, seen: Seen) -> None:
        """Look at its answer, its account being closed."""
        made, says = seen.account.usage.completion_tokens, seen.says
        if made < says.long_answer_tokens:
            return
        if not 0 < seen.most <= made and noise(seen.sight.text) < says.noise_bits:
            return
        now = self._clock.monotonic()
        signal = self._watched(seen.key, now).extracted(seen.sight, says)
        if signal is not None:
            self._note(seen.key, signal, says, now)

    def told(self) -> tuple[Oddity, ...]:
        """Whose requests are odd, the newest last; what has ended is forgotten."""
        now = self._clock.monotonic()
        for name in [n for n, one in self._episodes.items() if now - one.last > EPISODE_S]:
            del self._episodes[name]
        return tuple(
            Oddity(
                tenant=tenant,
                key=key,
                signal=signal,
                since_ns=one.since_ns,
                count=one.count,
                until_ns=one.until_ns,
            )
            for (tenant, key, signal), one in self._episodes.items()
        )

    def _watched(self, key: Key, now: float) -> Watched:
        found = self._keys.get(key)
        if found is None:
            if len(self._keys) >= self._most:
                self._keys.popitem(last=False)
            found = self._keys[key] = Watched(now)
        self._keys.move_to_end(key)
        return found

    def _note(self, key: Key, signal: Signal, says: Anomalies, now: float) -> None:
        self._signals.add((signal,))
        episode = self._episode(key, signal, now)
        episode.count += 1
        if says.action != "throttle" or key in self._throttles:
            return
        if len(self._throttles) >= self._most:
            self._throttles.popitem(last=False)
        spacing = 60 / says.throttle_per_minute
        self._throttles[key] = Throttle(now + says.throttle_s, now + spacing, signal)
        episode.until_ns = self._clock.now_ns() + int(says.throttle_s * 1e9)

    def _episode(self, key: Key, signal: Signal, now: float) -> Episode:
        name = (*key, signal)
        found = self._episodes.pop(name, None)
        if found is None or now - found.last > EPISODE_S:
            found = Episode(self._clock.now_ns(), now)
            log.warning("key_is_odd", tenant=key[0], key=key[1], signal=signal)
            while len(self._episodes) >= MAX_TOLD:
                self._episodes.popitem(last=False)
        found.last = now
        self._episodes[name] = found
        return found
