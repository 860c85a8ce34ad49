"""What can be seen of replicas: the supervisor's word, and what is newer."""

from pathlib import Path

import pytest

from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.control.observed import observed


def status(**of: object) -> Status:
    process = ProcessStatus(**{"name": "r", "role": "replica", "pid": 7, **of})  # type: ignore[arg-type]
    return Status(pid=1, address="", started_ns=0, processes=(process,))


@pytest.mark.parametrize(
    ("of", "told", "ready", "served"),
    [
        ({"state": State.READY}, "", True, True),
        ({"state": State.STARTING}, "", False, False),
        ({"state": State.STARTING}, '{"phase":"ready","pid":7}', True, True),
        ({"state": State.STARTING}, '{"phase":"ready","pid":8}', False, False),
        ({"state": State.STARTING}, '{"phase":"warming","pid":7}', False, False),
        ({"state": State.WAITING, "ready_ms": 5}, "", False, True),
        ({"state": State.FAILED}, '{"phase":"ready","pid":7}', False, False),
    ],
)
def test_ready_is_what_either_says(
    tmp_path: Path, of: dict[str, object], told: str, ready: bool, served: bool
) -> None:
    if told:
        (tmp_path / "r.state.json").write_text(told)
    seen = observed(status(**of), tmp_path)
    assert ("r" in seen.ready, "r" in seen.served) == (ready, served)
