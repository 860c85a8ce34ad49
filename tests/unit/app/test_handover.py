import os
from pathlib import Path

import msgspec
import pytest

from tiffin.app.handover import (
    FORMAT,
    Handover,
    Replica,
    decode,
    encode,
    only_inheriting,
    read,
    write,
)
from tiffin.app.keeper import Kept
from tiffin.control.fleet.devices import Promise
from tiffin.control.fleet.status import ProcessStatus, Stage, State, UpgradeStatus
from tiffin.errors import Conflict
from tiffin.ports.launcher import Left
from tiffin.types.snapshot import Deployment


def kept(name: str, fd: int) -> Kept:
    status = ProcessStatus(name=name, role="gateway", state=State.READY, pid=7, ready_ms=9)
    left = Left(pid=7, output_fd=fd, rest=b"half \xff")
    return Kept(status=status, left=left, started_at=1.5, ready_at=2.5, failures=1, said="hello")


def handover() -> Handover:
    deployment = Deployment(
        name="r-a", model="a", revision="sha256:0", socket="/s", spec=msgspec.Raw(b'{"slots":2}')
    )
    return Handover(
        data="/d",
        listener_fd=11,
        lock_fd=12,
        started_ns=5,
        upgrade=UpgradeStatus(id="up-1", stage=Stage.TAKING_OVER, python="/p"),
        control=kept("control", 13),
        gateways=(kept("gateway-2", 14), kept("gateway", 15)),
        gateways_made=2,
        replicas=(Replica(deployment=deployment, kept=kept("r-a", -1), leaving=True),),
        promises={"r-a": Promise(devices=("cuda:0",), need_bytes=3, loading=False)},
    )


def test_what_is_handed_over_arrives() -> None:
    given = handover()
    found = decode(encode(given))
    assert bytes(found.replicas[0].deployment.spec) == b'{"slots":2}'
    assert encode(found) == encode(given)
    assert found.fds == {11, 12, 13, 14, 15}


def test_another_format_is_refused_whatever_else_it_says() -> None:
    for content in (b'{"format": %d}' % (FORMAT + 1), b"{}", b'{"format": 0, "data": 7}'):
        with pytest.raises(Conflict, match="format"):
            decode(content)


def test_what_cant_be_read_is_refused() -> None:
    whole = encode(handover())
    missing = whole.replace(b'"listener_fd":11,', b"")
    for content in (b"", b"[]", whole[:-1], missing, whole.replace(b'"ready"', b'"radiant"')):
        with pytest.raises(Conflict, match="can't be read"):
            decode(content)


def test_what_a_later_version_adds_is_passed_over() -> None:
    added = encode(handover()).replace(b'"data":', b'"moods":{"a":1},"data":')
    assert decode(added).data == "/d"


def test_memory_can_be_read_again_and_again() -> None:
    memory = write(handover())
    try:
        assert read(memory).lock_fd == read(memory).lock_fd == 12
        assert not os.get_inheritable(memory)
    finally:
        os.close(memory)
    with pytest.raises(Conflict):
        read(memory)


def test_only_what_is_named_goes_along(tmp_path: Path) -> None:
    files = [os.open(tmp_path / str(n), os.O_CREAT | os.O_RDWR) for n in range(2)]
    os.set_inheritable(files[1], True)
    with only_inheriting(frozenset(files[:1])):
        assert [os.get_inheritable(fd) for fd in files] == [True, False]
    assert not os.get_inheritable(files[0])
    for fd in files:
        os.close(fd)
