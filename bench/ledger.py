"""How fast accounts come into the ledger, and how long a statement over many of them takes.

`python bench/ledger.py [--requests 10_000_000]`
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from itertools import product
from pathlib import Path

import msgspec

from tiffin.adapters.stores import ledger_rows
from tiffin.adapters.stores.connection import opened, transaction
from tiffin.adapters.stores.ledger import SqliteLedger
from tiffin.adapters.stores.sqlite import SqliteAccounts
from tiffin.app.clock import SystemClock
from tiffin.config.prices import FixedPrice, MachinePrice, ModelPrice, Prices
from tiffin.control.ingest import Ingest
from tiffin.control.money.statements import Ask, Statements
from tiffin.ledger.segments import DAY_NS
from tiffin.ports.ledger import HALF_HOUR_NS, Ran
from tiffin.telemetry.events import Attempt, Closed, Opened, Outcome
from tiffin.telemetry.journal import Journal
from tiffin.telemetry.metrics import Meter
from tiffin.types.usage import Usage

START_NS = 20_454 * DAY_NS  # 2026-01-01
DAYS = 30
TENANTS, KEYS, TAGS = 40, 3, 3
MODELS = (("chat", "chat", False), ("cloud", "cloud", True), ("fraud", "fraud", False))
OUTCOMES = (("ok", 0.95), ("cancelled", 0.02), ("failed", 0.02), ("lost", 0.01))
PRICES = Prices(
    machines=[MachinePrice(name="node", terms="reserved", hourly="42.5", since="2026-01-01")],
    models=[ModelPrice(model="cloud", input="12", output="48", since="2026-01-01")],
    fixed=[
        FixedPrice(name="disk", kind="storage", amount="2.1", quantity="500", since="2026-01-01"),
        FixedPrice(name="team", kind="people", amount="90000", since="2026-01-01"),
    ],
)


async def ingest(folder: Path) -> float:
    """Requests a second, journal lines to sums, of two lines each with everything in them."""
    writer = Journal(folder / "journal", "ep_1")
    count = 0
    for count in range(1, 150_001):
        model, target, upstream = MODELS[count % 3]
        name = f"req_{count:032x}"
        writer.open(
            Opened(
                id=name, at_ns=START_NS, tenant=f"t{count % TENANTS}", key=f"k{count % KEYS}",
                endpoint="chat", project="p", tag=f"w{count % TAGS}",
            )
        )  # fmt: skip
        attempt = Attempt(
            n=1, target=target, started_ns=START_NS, ended_ns=START_NS + 1, status=200
        )
        writer.close(
            Closed(
                id=name, at_ns=START_NS + count * 10**7, outcome=Outcome.OK, status=200,
                model=model, revision="sha256:0", snapshot=3, duration_ns=10**9,
                usage=Usage(prompt_tokens=500, completion_tokens=90, device_ns=10**8, queue_ns=7),
                cost_pico=123_456_789, currency="INR", target=target, upstream=upstream,
                attempts=[attempt],
            )
        )  # fmt: skip
    writer.shut()
    accounts = SqliteAccounts(folder / "ingest.db")
    taken = Ingest(folder / "journal", accounts, Meter("bench", "e"), SystemClock())
    began = time.perf_counter()
    lines = await taken.catch_up()
    took = time.perf_counter() - began
    accounts.close()
    if lines != 2 * count:
        raise SystemExit(f"{lines} lines of {2 * count}")
    return count / took


def fill(path: Path, requests: int) -> int:
    """A month of a small company's requests, as sums; how many rows that is."""
    chance = random.Random(7)
    places = list(
        product(range(48 * DAYS), range(TENANTS), range(KEYS), range(TAGS), MODELS, OUTCOMES)
    )
    chosen = chance.sample(places, 400_000)
    each = requests / sum(share for *_, (_, share) in chosen)
    sums: dict[ledger_rows.Place, list[int]] = {}
    left = requests
    for at, tenant, key, tag, (model, *told), (outcome, share) in chosen:
        count = min(left, max(1, round(each * share)))
        left -= count
        heading = (f"t{tenant}", f"k{key}", "chat", model, "r", outcome, 200, "", "")
        since = START_NS // HALF_HOUR_NS + at
        place = (since, heading, "p", f"w{tag}", *told, True, "INR")
        cost, device = (chance.randrange(10**9) * count for _ in range(2))
        sums[place] = [count, 500 * count, 90 * count, 0, device, 0, 0, 0, 0, 0, cost, 0]
    sums[place][0] += left
    db = opened(path)
    with transaction(db):
        ledger_rows.enter(db, sums, ledger_rows.Keys())
    db.close()
    return len(sums)


async def statements(path: Path) -> dict[str, float]:
    """Seconds that statements of the month take, by what they are grouped by."""
    ledger = SqliteLedger(path)
    month = {"since_ns": START_NS, "until_ns": START_NS + DAYS * DAY_NS}
    await ledger.ran(
        [
            Ran(name="here", kind="machine", share=2, **month),
            Ran(name="chat-1", kind="loaded", model="chat", share=1, slots=4, opaque=True, **month),
            Ran(name="fraud-1", kind="loaded", model="fraud", share=1, slots=1, **month),
        ]
    )
    made = Statements(ledger, lambda: PRICES, lambda: None, SystemClock())
    found: dict[str, float] = {}
    for by in ("tenant,line", "tenant,project,key,tag,model,line", "day"):
        began, worked = time.perf_counter(), time.process_time()
        ask = Ask(since="2026-01-01", until="2026-01-31", by=by)
        page = await made.page(ask)
        msgspec.json.encode(page)
        found[by] = round(time.perf_counter() - began, 3)
        found[f"{by}: of the processor"] = round(time.process_time() - worked, 3)
        told = await made.statement(ask)
        if told.shown_pico != told.total_pico:
            raise SystemExit(f"{told.shown_pico} isn't {told.total_pico}")
        found[f"{by}: requests"] = sum(row.requests for row in told.rows)
    ledger.close()
    return found


def main() -> None:
    """Measure both and print what came of it as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rate = asyncio.run(ingest(root))
        rows = fill(root / "month.db", given.requests)
        took = asyncio.run(statements(root / "month.db"))
    print(json.dumps({"ingest_requests_per_s": round(rate), "rows": rows, **took}, indent=2))


if __name__ == "__main__":
    main()
