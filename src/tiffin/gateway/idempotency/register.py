"""The keys of this data folder as one gateway knows them: it claims them, and keeps their answers.

What must hold when the process dies at any moment is in the log before it is true here. Every key
has two facts there at least, so that one that is damaged takes no key with it.
"""

import asyncio
from collections.abc import Iterator

import msgspec

from tiffin.errors import Indeterminate, NotFound, TiffinError, Unavailable
from tiffin.gateway.idempotency.keys import Bounds, Entry, Keys, Wanted
from tiffin.gateway.respond import Kept
from tiffin.ports.clock import Clock
from tiffin.ports.key_log import Damage, Fact, KeyLog, Place, Standing
from tiffin.ports.vault import Label, Vault
from tiffin.telemetry import log

READ_AT_ONCE = 500
MOVE_AT_ONCE = 64
MOVE_BYTES = 4 << 20
CROWDED_BYTES = 64 << 20
TURN_TRIES = 50
TURN_WAIT_S = 0.01
NOWHERE = Place("", 0, 0, 0)
BORNE = 1
"""So many facts of an epoch may be lost without any key."""


class KeptAnswer(Kept, frozen=True, kw_only=True):
    """The answer to `request` as it went to its client."""

    request: str


class Register:
    """Use it from one loop. `load` before anything is claimed, `tend` a few times a second."""

    def __init__(self, key_log: KeyLog, vault: Vault, clock: Clock, bounds: Bounds) -> None:
        self.keys = Keys(bounds)
        self._log = key_log
        self._vault = vault
        self._clock = clock
        self._buried: set[str] = set()
        self._damaged: dict[str, bool] = {}
        self._loaded = False
        self._fault = ""

    async def load(self) -> None:
        """Read what was written before, a little at a time; tries again where that fails."""
        while not self._loaded:
            try:
                while self._read(READ_AT_ONCE):  # noqa: ASYNC110 - it reads, it doesn't wait
                    await asyncio.sleep(0)
                self._bury()
                self._loaded = True
            except TiffinError as error:
                self._failed(error.message)
                await asyncio.sleep(1.0)

    async def claim(self, wanted: Wanted) -> Fact | KeptAnswer:
        """A claim to be kept, released or lost later; or the answer to the same request.

        Raises what forbids both, and `Unavailable` where nothing can be claimed now.
        """
        if not self._loaded:
            raise Unavailable("idempotency keys are still being read", retry_after=1.0)
        if not self._vault.ready(wanted.tenant):
            await asyncio.to_thread(self._vault.prepare, wanted.tenant)
        for _ in range(TURN_TRIES):
            with self._log.turn() as mine:
                if mine:
                    return self._claim(wanted)
            await asyncio.sleep(TURN_WAIT_S)
        raise Unavailable("another gateway holds the idempotency keys for long", retry_after=1.0)

    def paying(self, claim: Fact) -> None:
        """Somebody who charges for it is about to be asked; raises `Unavailable`: then don't."""
        self._tell(msgspec.structs.replace(claim, standing=Standing.PAYING))

    def keep(self, claim: Fact, answer: KeptAnswer | None) -> None:
        """It is answered; None is an answer that is too large to be kept. Never raises.

        Where the disk takes no answer, the key is done all the same.
        """
        done = msgspec.structs.replace(claim, standing=Standing.DONE)
        if answer is not None:
            try:
                sealed = self._vault.seal(_label(claim), msgspec.msgpack.encode(answer))
                self._tell(msgspec.structs.replace(done, kept=True), sealed)
                return
            except TiffinError as error:
                log.error("answer_not_kept", request=claim.request, reason=error.message)
        self._end(done)

    def release(self, claim: Fact) -> None:
        """Its key is free again. Never raises."""
        self._end(msgspec.structs.replace(claim, standing=Standing.RELEASED))

    def lose(self, claim: Fact) -> None:
        """What it cost isn't known. Never raises."""
        self._end(msgspec.structs.replace(claim, standing=Standing.LOST))

    def tend(self) -> None:
        """Forget what is old, see who has ended, and give back the room that is garbage."""
        if not self._loaded:
            return
        self.keys.expire(self._clock.now_ns())
        try:
            if self._read(READ_AT_ONCE) or len(self.keys) or self._log.ended():
                with self._log.turn() as mine:
                    if mine:
                        self._catch_up()
                        self._bury()
                        self._move()
            self._failed("")
        except TiffinError as error:
            self._failed(error.message)

    def _failed(self, reason: str) -> None:
        """Note why the log can't be read or tended, once for each reason; empty: it can be."""
        if reason and reason != self._fault:
            log.warning("idempotency_keys_untended", reason=reason)
        self._fault = reason

    def _claim(self, wanted: Wanted) -> Fact | KeptAnswer:
        self._catch_up()
        known = self.keys.find(wanted.scope)
        if known is not None and known.begun and known.fact.epoch != self._log.epoch:
            self._bury()
        if known is None:
            self._check_whole()
        found = self.keys.claim(wanted, self._log.epoch, self._clock.now_ns())
        if isinstance(found, Entry):
            return self._answer(found)
        self._log.append(found)
        self._tell(found)
        return found

    def _check_whole(self) -> None:
        """A key that nobody knows is a new one, unless keys were lost that may still count."""
        for one in self._log.damage.values():
            if self._unsure(one):
                raise Indeterminate(
                    f"the log of idempotency keys is damaged (file {one.segment}), so nobody can"
                    " know whether a request with this key was done before, and it isn't run; send"
                    " it without a key if it may be done twice"
                )

    def _unsure(self, one: Damage) -> bool:
        """Whether keys may be lost that are remembered still."""
        return one.lost > BORNE and self._clock.now_ns() < one.at_ns + self.keys.bounds.keep_ns

    def _answer(self, entry: Entry) -> KeptAnswer:
        fact, reason = entry.fact, "it was too large, or the disk had no room"
        if fact.kept:
            try:
                content = self._vault.open(_label(fact), self._log.content(entry.place))
                return msgspec.msgpack.decode(content, type=KeptAnswer)
            except (NotFound, msgspec.DecodeError):
                reason = "it can't be read any more"
        raise Indeterminate(
            f"the request with this Idempotency-Key ({fact.request}) was answered and isn't run"
            f" again, but its answer isn't here: {reason}; use another key to run it anew"
        )

    def _tell(self, fact: Fact, content: bytes = b"") -> None:
        self.keys.learn(fact, self._log.append(fact, content), self._clock.now_ns())

    def _end(self, fact: Fact) -> None:
        try:
            self._tell(fact)
        except TiffinError as error:  # after our death it will stand as it did before
            log.error("idempotency_key_unwritten", request=fact.request, reason=error.message)
            self.keys.learn(fact, NOWHERE, self._clock.now_ns())

    def _read(self, most: int) -> bool:
        told = self._log.read(most)
        now_ns = self._clock.now_ns()
        for fact, place in told:
            self.keys.learn(fact, place, now_ns)
        self._tell_of_damage()
        return bool(told)

    def _tell_of_damage(self) -> None:
        """Say once of each epoch that facts of it are lost, and once more where keys may be."""
        damage = self._log.damage
        lost = {epoch: one.lost > BORNE for epoch, one in damage.items()}
        for epoch, keys in lost.items():
            if self._damaged.get(epoch) is not keys:
                log.error(
                    "idempotency_keys_damaged",
                    segment=damage[epoch].segment,
                    offset=damage[epoch].offset,
                    keys_lost=keys,
                )
        self._damaged = lost

    def _catch_up(self) -> None:
        while self._read(READ_AT_ONCE):
            pass

    def _bury(self) -> None:
        ended = self._log.ended()
        if ended - self._buried:
            self._catch_up()  # what they wrote last
            for epoch in ended - self._buried:
                self.keys.bury(epoch, whole=epoch not in self._log.damage)
        self._buried = ended

    def _move(self) -> None:
        """Move what counts out of a segment that is mostly garbage, or out of the oldest where
        all together are; then remove it."""
        queues = self._log.movable()
        total = sum(size for queue in queues for _, size in queue)
        crowded = total > 2 * self.keys.all.bytes + CROWDED_BYTES
        aside = {one.segment for one in self._log.damage.values() if self._unsure(one)}
        for queue in queues:
            segment, size = queue[0]
            if any(name in aside for name, _ in queue):
                continue  # without it nobody would know that keys are missing
            entries = self.keys.in_segment(segment)
            counting = sum(_written_bytes(entry.place) for entry in entries)
            if counting * 2 > size and not crowded:
                continue
            for entry in _slice(entries):
                self._copy(entry)
            if not self.keys.in_segment(segment):
                self._log.drop(segment)
            return

    def _copy(self, entry: Entry) -> None:
        """Write a fact anew; should it be damaged there, its key is lost, not free."""
        fact, place = entry.fact, entry.place
        content = self._log.content(place) if place.content_bytes else b""
        lost = Standing.LOST if fact.standing is Standing.DONE else fact.standing
        self._log.append(msgspec.structs.replace(fact, standing=lost, kept=False))
        self._tell(fact, content)


def _written_bytes(place: Place) -> int:
    """What a fact takes that was moved: twice itself, its content once."""
    return 2 * place.bytes - place.content_bytes


def _slice(entries: list[Entry]) -> Iterator[Entry]:
    """As many as may be moved at once."""
    total = 0
    for entry in entries[:MOVE_AT_ONCE]:
        yield entry
        total += entry.place.bytes
        if total > MOVE_BYTES:
            return


def _label(fact: Fact) -> Label:
    return Label(fact.tenant, "idempotency", f"{fact.scope.hex()}:{fact.seq}")
