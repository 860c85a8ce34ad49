"""Tenants whose requests lately made a batch fail: theirs run among themselves, for a while.

Whoever shares a batch with a request that fails pays for finding it: the batch runs again in
halves. So who made that happen shares with nobody else until its requests have been sound again.
"""

from typing import Final

CLEARED_AFTER: Final = 32
"""Requests in a row that went well, after which a tenant shares batches again."""
MAX_SUSPECTS: Final = 256


class Suspects:
    """Which tenants run apart; bounded: who was suspected longest ago is cleared first."""

    def __init__(self) -> None:
        self._owed: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._owed)

    def __contains__(self, tenant: str) -> bool:
        """Whether this tenant's requests run apart."""
        return tenant in self._owed

    def failed(self, tenant: str) -> None:
        """A request of its failed."""
        self._owed.pop(tenant, None)
        self._owed[tenant] = CLEARED_AFTER
        if len(self._owed) > MAX_SUSPECTS:
            del self._owed[next(iter(self._owed))]

    def went_well(self, tenant: str) -> None:
        """A request of its was answered."""
        owed = self._owed.get(tenant)
        if owed is None:
            return
        if owed > 1:
            self._owed[tenant] = owed - 1
        else:
            del self._owed[tenant]
