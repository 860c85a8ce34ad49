import os
import time
from pathlib import Path

from tiffin.app.demand import TICK_NS, Asked
from tiffin.types.demand import Demand


def test_files_of_all_gateways_add_up_and_garbage_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.demand.json").write_text('{"m":{"waiting":1,"since_ns":7,"used_ns":9}}')
    (tmp_path / "b.demand.json").write_text('{"m":{"waiting":2,"since_ns":5,"outstanding":1}}')
    (tmp_path / "c.demand.json").write_bytes(b'{"m":{"x":' + b"[" * 100_000)
    asked = Asked(tmp_path)
    assert asked.changed()
    assert asked.of == {"m": Demand(waiting=3, since_ns=5, used_ns=9, outstanding=1)}
    assert asked.anybody_waits


def test_what_comes_within_the_same_tick_and_inode_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "gateway.demand.json"
    path.write_text('{"m":{"waiting":0}}')
    asked = Asked(tmp_path)
    assert asked.changed()
    tick = path.stat().st_mtime_ns
    path.write_text('{"m":{"waiting":1}}')
    os.utime(path, ns=(tick, tick))
    assert asked.changed()
    assert asked.anybody_waits


def test_what_stays_as_it_is_is_read_no_more(tmp_path: Path) -> None:
    path = tmp_path / "gateway.demand.json"
    path.write_text('{"m":{"waiting":1}}')
    old = time.time_ns() - 2 * TICK_NS
    os.utime(path, ns=(old, old))
    asked = Asked(tmp_path)
    assert asked.changed()
    # Other files of the folder change all the time.
    for number in range(3):
        (tmp_path / str(number)).touch()
        assert not asked.changed()
