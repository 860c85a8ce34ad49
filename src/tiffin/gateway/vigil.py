"""Requests that are held until their model is loaded: let go together, or told why together."""

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tiffin.errors import DeadlineExceeded, Loading, NoHealthyReplica, Overloaded
from tiffin.gateway.due import Due
from tiffin.types.snapshot import Target

FAILED_RETRY_S = 30.0
# How much longer than its load may take a model is still wanted for a client that didn't wait.
WISH_S = 5.0


class Foresight(NamedTuple):
    """What is known of a model's next load: how long it should take (0: unknown); why the last one
    failed, and when (UTC nanoseconds), where it did."""

    load_s: float = 0.0
    failure: str = ""
    failed_ns: int = 0


@dataclass(slots=True)
class Vigil:
    """One model's, from the first request that waits to the end of the load; `began` is a moment of
    the loop's clock, `since_ns` the same as UTC. `wished_until` keeps it alive where nobody waits.
    """

    began: float
    since_ns: int
    held: int = 0
    wished_until: float = 0.0
    failure: str = ""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def wanted(self, now: float) -> bool:
        """Whether anybody still wants the model for this."""
        return self.held > 0 or now < self.wished_until

    def end(self, failure: str = "") -> None:
        """Let all go: to the model, or with the reason why it doesn't run."""
        self.failure = failure
        self.over.set()

    async def hold(self, target: Target, due: Due, foresight: Foresight) -> Due:
        """Wait for the end; a request whose time was given by its plan gets what it waited back.

        Raises `Overloaded` where too many wait, `Loading` at once where a client's own time can't
        suffice or where the load takes longer than it may, `NoHealthyReplica` where it failed.
        """
        now = asyncio.get_running_loop().time()
        name, left_s = target.model, foresight.load_s - (now - self.began)
        if due.named and foresight.load_s and now + left_s > due.deadline:
            self.wished_until = max(self.wished_until, now + left_s + WISH_S)
            raise Loading(
                f"the model '{name}' isn't loaded, and loading it takes longer than this request"
                f" may: about {max(left_s, 0):.1f} s",
                retry_after=max(1.0, left_s),
            )
        if self.held >= target.held:
            raise Overloaded(
                f"{self.held} requests already wait for the model '{name}' to be loaded",
                retry_after=max(1.0, left_s),
            )
        self.held += 1
        try:
            until = min(now + target.cold_start_s, due.deadline if due.named else inf)
            async with asyncio.timeout_at(until):
                await self.over.wait()
        except TimeoutError as error:
            if until == due.deadline:
                raise DeadlineExceeded(
                    f"the deadline passed while the model '{name}' was being loaded"
                ) from error
            raise Loading(
                f"the model '{name}' wasn't loaded within {target.cold_start_s:g} s",
                retry_after=FAILED_RETRY_S,
            ) from error
        finally:
            self.held -= 1
        if self.failure:
            raise NoHealthyReplica(
                f"the model '{name}' doesn't run: {self.failure}", retry_after=FAILED_RETRY_S
            )
        return due.after(asyncio.get_running_loop().time() - now)
