"""How limits stand by what several gateways say of them."""

from pathlib import Path

import msgspec

from tiffin.control.budgets.charged import charged_in
from tiffin.control.standing import faults, limits_page
from tiffin.types.limits import Rule, Standing, Standings
from tiffin.types.paths import DataFolder, standing_limits

SHOP = "tenant 'shop'"
SLOTS = Rule(of="concurrency", amount=8)
MONEY = Rule(of="money", amount=10, per="month")


def says(
    folder: DataFolder, gateway: str, *limits: Standing, why: str = "", at_ns: int = 9
) -> None:
    folder.run.mkdir(exist_ok=True)
    content = msgspec.json.encode(Standings(at_ns=at_ns, limits=limits, degraded=why))
    standing_limits(folder, gateway).write_bytes(content)


def stands(rule: Rule, left: int, whole: int = 10, asked_ns: int = 0) -> Standing:
    return Standing(
        holder=SHOP, level="tenant", rule=rule, whole=whole, left=left, asked_ns=asked_ns
    )


def test_slots_are_those_that_all_have_and_the_rest_is_as_it_was_learnt_last(
    tmp_path: Path,
) -> None:
    folder = DataFolder(tmp_path)
    says(folder, "gateway", stands(SLOTS, 6, 8), stands(MONEY, 3, asked_ns=20), at_ns=30)
    says(folder, "gateway-2", stands(SLOTS, 5, 8), stands(MONEY, 7, asked_ns=10), at_ns=40)
    left = {one.rule.of: one.left for one in limits_page(folder, None).data}
    assert left == {"concurrency": 3, "money": 3}
    assert charged_in(folder.run, 30) == {(SHOP, "month", ()): 7}


def test_why_a_store_is_missed_is_said_once(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    for name in ("gateway", "gateway-2"):
        says(folder, name, why="it is away")
    says(folder, "gateway-3")
    assert faults(folder) == ["it is away"]
