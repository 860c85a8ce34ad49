"""A writer that is killed at any moment, while another process reads behind it."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.control.ingest import Ingest
from tiffin.ports.accounts import Query
from tiffin.telemetry.metrics import Meter
from tiffin.testing.clock import FakeClock

WRITER = """
import sys
from pathlib import Path
from tiffin.telemetry.events import Closed, Opened, Outcome
from tiffin.telemetry.journal import Journal
folder, epoch = Path(sys.argv[1]), sys.argv[2]
journal = Journal(folder, epoch, segment_bytes=20_000)
for number in range(1_000_000):
    name = f"req_{epoch}_{number}"
    journal.open(Opened(id=name, at_ns=1, tenant="t", key="k", endpoint="chat"))
    print("opened", name, flush=True)
    if number >= 5:
        name = f"req_{epoch}_{number - 5}"
        journal.close(Closed(id=name, at_ns=2, outcome=Outcome.OK, status=200))
        print("closed", name, flush=True)
"""

FULL = """
import resource, sys
from pathlib import Path
from tiffin.errors import JournalUnavailable
from tiffin.telemetry.events import Closed, Opened, Outcome
from tiffin.telemetry.journal import Journal, read, segment_path, segments
import msgspec
folder = Path(sys.argv[1])
unlimited = resource.RLIM_INFINITY
journal = Journal(folder, "ep", segment_bytes=10_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, unlimited))
opened = []
while True:
    name = f"req_{len(opened)}"
    try:
        journal.open(Opened(id=name, at_ns=1, tenant="t", key="k", endpoint="chat"))
    except JournalUnavailable:
        break
    opened.append(name)
for name in opened:
    journal.close(Closed(id=name, at_ns=2, outcome=Outcome.OK, status=200))
assert 0 < journal.pending < len(opened) > 50, journal.pending
resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
journal.shut()
decode = msgspec.json.Decoder(Opened | Closed).decode
lines = [read(segment_path(folder, "ep", n), 0, decode) for n in segments(folder)["ep"]]
events = [event for stretch in lines for event in stretch.events]
assert [e.id for e in events if isinstance(e, Opened)] == opened
assert [e.id for e in events if isinstance(e, Closed)] == opened
assert sum(stretch.torn for stretch in lines) == 0
"""


def test_whatever_the_writer_said_it_wrote_is_one_entry(tmp_path: Path) -> None:
    store = SqliteAccounts(tmp_path / "tiffin.db")
    ingest = Ingest(tmp_path / "journal", store, Meter("control", "ep"), FakeClock())
    said: dict[str, str] = {}
    for life in range(4):
        lines = random.Random(life).randint(50, 3000)
        with writing(tmp_path / "journal", f"ep{life}") as writer:
            assert writer.stdout is not None
            for number, line in enumerate(writer.stdout):
                if line.endswith("\n"):
                    word, name = line.split()
                    said[name] = word
                if number % 500 == 0:
                    asyncio.run(ingest.catch_up())
                if number == lines:
                    writer.kill()
    asyncio.run(ingest.catch_up())
    entries = asyncio.run(store.entries(Query(limit=100_000)))
    totals = asyncio.run(store.totals())
    store.close()
    outcomes = {entry.id: entry.outcome for entry in entries}
    assert len(outcomes) == len(entries) == sum(total.requests for total in totals)
    # What was written and couldn't be said any more may be there too: a line of each life.
    assert len(outcomes) - len(said) <= 4
    for name, word in said.items():
        assert outcomes[name] in (("ok",) if word == "closed" else ("lost", "ok"))
    assert list((tmp_path / "journal").iterdir()) == []


def writing(folder: Path, epoch: str) -> "subprocess.Popen[str]":
    """A process that opens and closes accounts, and says so after each, until it is killed."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), epoch], stdout=subprocess.PIPE, text=True
    )


def test_a_disk_that_gives_no_more_blocks_loses_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True)
