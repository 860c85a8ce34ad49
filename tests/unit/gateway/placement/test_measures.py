from tiffin.gateway.placement.choice import Standing
from tiffin.gateway.placement.measures import Measures
from tiffin.telemetry.metrics import Meter


def gauges(meter: Meter) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.name: {series.labels: series.numbers[0] for series in family.series}
        for family in meter.snapshot().families
        if family.kind == "gauge"
    }


def test_replicas_and_models_that_are_gone_have_nothing_outstanding() -> None:
    meter = Meter("gateway", "e")
    measures = Measures(meter)
    busy = [(Standing(outstanding=3), True), (Standing(outstanding=2), True)]
    measures.look("a", 1, busy)
    measures.look("b", 2, busy)
    measures.look("a", 1, busy[:1])
    measures.gone({"a"})
    found = gauges(meter)
    assert found["tiffin_place_outstanding"] == {
        ("a", "0"): 3,
        ("a", "1"): 0,
        ("b", "0"): 0,
        ("b", "1"): 0,
    }
    assert found["tiffin_place_ready"][("a", "0")] == 1
    assert not any(found["tiffin_place_ready"][key] for key in (("a", "1"), ("b", "0"), ("b", "1")))
    assert found["tiffin_requests_held"] == {("a",): 1, ("b",): 0}
