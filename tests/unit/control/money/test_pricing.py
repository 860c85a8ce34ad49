"""What use of targets costs now, and how long everything has run."""

import msgspec
import pytest

from tiffin.config.load import Loaded, load_text
from tiffin.control.fleet.status import ProcessStatus, State, Status
from tiffin.control.money.lives import Here, lives_of
from tiffin.control.publish import Shelf, Site, compose
from tiffin.ledger.segments import DAY_NS
from tiffin.types.paths import DataFolder
from tiffin.types.price import Price
from tiffin.types.snapshot import Snapshot

DAY = 20_454  # 2026-01-01
MODELS = """
[models.echo]
runtime = "echo"
slots = 4

[models.cloud]
runtime = "remote"
url = "http://127.0.0.1:9/v1"
"""
PRICES = """
[[prices.rates]]
of = "USD"
rate = "100"
since = "2026-01-01"

[[prices.machines]]
name = "node"
hourly = "14.4"
since = "2026-01-01"

[[prices.models]]
model = "cloud"
input = "0.15"
output = "0.60"
currency = "USD"
since = "2026-01-01"

[[prices.models]]
model = "cloud"
input = "0.3"
since = "2026-02-01"
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return DataFolder(tmp_path_factory.mktemp("data"))


def loaded(prices: str = PRICES) -> Loaded:
    return load_text((MODELS + prices).encode(), {})


def published(folder: DataFolder, given: Loaded, day: int = DAY) -> Snapshot:
    return compose(given, {}, Shelf(), Site(folder, 2), None, day * DAY_NS)


def price_of(snapshot: Snapshot, name: str) -> Price | None:
    return snapshot.plans[name].targets[0].price


def test_an_upstreams_tokens_cost_what_the_book_says(folder: DataFolder) -> None:
    price = price_of(published(folder, loaded()), "cloud")
    assert price == Price(
        currency="INR", input_token=15_000_000, cached_token=15_000_000, output_token=60_000_000
    )


def test_another_price_is_in_force_when_its_day_has_come(folder: DataFolder) -> None:
    price = price_of(published(folder, loaded(), DAY + 31), "cloud")
    assert price == Price(currency="INR", input_token=300_000, cached_token=300_000)


def test_a_model_of_ours_costs_its_part_of_the_machine(folder: DataFolder) -> None:
    # Four thousandths a second, for two cores; one thread of them, four slots.
    price = price_of(published(folder, loaded()), "echo")
    assert price == Price(currency="INR", device_second=500_000_000)


def test_without_prices_nothing_has_one(folder: DataFolder) -> None:
    snapshot = published(folder, loaded(""))
    assert {price_of(snapshot, name) for name in ("echo", "cloud")} == {None}
    assert price_of(published(folder, loaded(), DAY - 1), "cloud") is None


def test_the_highest_prices_there_may_be_are_published_as_they_are(folder: DataFolder) -> None:
    given = loaded(PRICES.replace('"0.15"', '"46116860184"').replace('"14.4"', '"16602069666"'))
    snapshot = published(folder, given)
    price = price_of(snapshot, "cloud")
    assert price is not None
    assert price.input_token == 46_116_860_184 * 100 * 10**6  # pico-units of a token, in rupees
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot


def test_lives_begin_where_they_began_and_end_now(folder: DataFolder) -> None:
    given = loaded()
    (one,) = published(folder, given).deployments
    ready = ProcessStatus(
        name=one.name,
        role="replica",
        model="echo",
        state=State.READY,
        pid=5,
        since_ns=10_000_000_000,
        ready_ms=2_000,
    )
    status = Status(pid=1, address="", started_ns=7, processes=(ready,))
    lives = lives_of(status, [one], given.config.models, Here("here", 2), 60_000_000_000)
    assert [(life.kind, life.since_ns, life.until_ns) for life in lives] == [
        ("machine", 7, 60_000_000_000),
        ("load", 8_000_000_000, 10_000_000_000),
        ("loaded", 10_000_000_000, 60_000_000_000),
    ]
    assert [(life.share, life.slots) for life in lives] == [(2, 1), (1, 4), (1, 4)]


def test_what_sleeps_has_no_life(folder: DataFolder) -> None:
    given = loaded()
    (one,) = published(folder, given).deployments
    asleep = ProcessStatus(name=one.name, role="replica", model="echo", state=State.ASLEEP)
    status = Status(pid=1, address="", started_ns=7, processes=(asleep,))
    lives = lives_of(status, [one], given.config.models, Here("here", 2), 9)
    assert [life.kind for life in lives] == ["machine"]
