"""What an operator is told where memory is short: need, have, and what would mend it."""

from collections.abc import Mapping

_MIB = 1 << 20
_NAMED = 4


class Shortage:
    """Says why something isn't loaded on a machine with this much memory for models."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes

    def refused(self, need_bytes: int, beside: Mapping[str, int]) -> str:
        """It can't be loaded beside these always-loaded models, or at all where there are none."""
        needs = f"it needs {megabytes(need_bytes)}"
        has = f"{megabytes(self._budget)} for models"
        if not beside:
            return f"{needs}, and this machine has {has}: {_MEND}"
        names = sorted(beside, key=lambda name: -beside[name])
        more = ", …" if len(names) > _NAMED else ""
        return (
            f"{needs}, and of this machine's {has} {megabytes(sum(beside.values()))} are taken by"
            f" always-loaded ones ({', '.join(names[:_NAMED])}{more}): give one of them"
            f' keep = "on-demand", or {_MEND}'
        )

    def queued(self, need_bytes: int, free_bytes: int) -> str:
        """It waits until others have ended."""
        return (
            f"it waits for memory: it needs {megabytes(need_bytes)}, and {megabytes(free_bytes)} of"
            f" {megabytes(self._budget)} are free"
        )


_MEND = (
    "raise [server] memory_mb if the machine has more, lower the model's context, slots or replicas"
    " if it has such, or serve a smaller one"
)


def megabytes(count: int) -> str:
    """Whole mebibytes, rounded up, as settings count them."""
    return f"{-(-count // _MIB)} MB"
