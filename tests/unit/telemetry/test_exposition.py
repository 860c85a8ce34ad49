"""One text for all processes: nothing lost or doubled when they end."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tiffin.telemetry.exposition import FOLDED, Collector, Folded, render
from tiffin.telemetry.metrics import Meter


class Process:
    """What one process does with its numbers."""

    def __init__(self, folder: Path, epoch: str) -> None:
        self.path = folder / f"gateway.{epoch}.json"
        self.meter = Meter("gateway", epoch)
        self.requests = self.meter.counter("requests_total", "Requests", ("model",))
        self.seconds = self.meter.histogram("seconds", "Time", ("model",), (0.1, 1.0))
        self.running = self.meter.gauge("running", "Running now")
        self.known = self.meter.gauge("known", "Keys that all know", alike=True)

    def work(self, model: str = "chat", seconds: float = 0.5) -> None:
        self.requests.add((model,))
        self.seconds.observe((model,), seconds)
        self.running.inc()
        self.known.set(7)
        self.meter.write(self.path)

    def die(self) -> None:
        self.meter.close()


def shown(folder: Path) -> dict[str, float]:
    text = render(Collector(folder).collect())
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_living_processes_add_up(tmp_path: Path) -> None:
    for epoch in ("a", "b"):
        Process(tmp_path, epoch).work()
    seen = shown(tmp_path)
    assert seen['requests_total{model="chat"}'] == 2
    assert seen["running"] == 2
    assert seen["known"] == 7


def test_the_dead_leave_their_counts_and_not_their_gauges(tmp_path: Path) -> None:
    process = Process(tmp_path, "a")
    process.work()
    process.die()
    for _ in range(2):
        seen = shown(tmp_path)
        assert seen['requests_total{model="chat"}'] == 1
        assert seen['seconds_count{model="chat"}'] == 1
        assert "running" not in seen
    assert [path.name for path in tmp_path.iterdir()] == [FOLDED]


def test_a_crash_between_folding_and_deleting_counts_once(tmp_path: Path) -> None:
    process = Process(tmp_path, "a")
    process.work()
    left = {path: path.read_bytes() for path in tmp_path.iterdir()}
    process.die()
    shown(tmp_path)
    for path, content in left.items():
        path.write_bytes(content)
    assert shown(tmp_path)['requests_total{model="chat"}'] == 1


def test_a_file_that_makes_no_sense_harms_no_other(tmp_path: Path) -> None:
    Process(tmp_path, "a").work()
    (tmp_path / "replica.x.json").write_text("{")
    assert shown(tmp_path)['requests_total{model="chat"}'] == 1


def test_another_release_with_other_buckets_begins_anew(tmp_path: Path) -> None:
    old = Process(tmp_path, "a")
    old.work()
    old.die()
    meter = Meter("gateway", "b")
    meter.histogram("seconds", "Time", ("model",), (0.5,)).observe(("chat",), 0.1)
    meter.write(tmp_path / "gateway.b.json")
    assert shown(tmp_path)['seconds_count{model="chat"}'] == 1


def test_the_text_is_prometheus_own() -> None:
    meter = Meter("gateway", "ep")
    meter.counter("requests_total", "Requests\nserved", ("model",)).add(('a"b\\c\nd',))
    meter.histogram("seconds", "Time", (), (0.1, 1.0)).observe((), 0.5)
    meter.gauge("vllm:num_requests_running", "Running", ("model_name",)).set(1.5, ("chat",))
    text = render(meter.snapshot().families)
    assert text.endswith("\n")
    assert "# HELP requests_total Requests\\nserved\n# TYPE requests_total counter\n" in text
    assert 'requests_total{model="a\\"b\\\\c\\nd"} 1\n' in text
    assert (
        'seconds_bucket{le="0.1"} 0\nseconds_bucket{le="1"} 1\nseconds_bucket{le="+Inf"} 1\n'
        "seconds_sum 0.5\nseconds_count 1\n"
    ) in text
    assert 'vllm:num_requests_running{model_name="chat"} 1.5\n' in text
    sample = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\\n]|\\.)*",?)*\})? \S+')
    for line in text.splitlines():
        assert line.startswith("# ") or sample.fullmatch(line)


def test_totals_are_bounded(tmp_path: Path) -> None:
    for epoch in range(3):
        process = Process(tmp_path, str(epoch))
        for number in range(600):
            process.requests.add((f"m{epoch}-{number}",))
        process.meter.write(process.path)
        process.die()
    collected = Collector(tmp_path).collect()
    (requests,) = (family for family in collected if family.name == "requests_total")
    assert len(requests.series) == 1001
    assert sum(series.numbers[0] for series in requests.series) == 1800
    folded = msgspec.json.decode((tmp_path / FOLDED).read_bytes(), type=Folded)
    assert folded.families == collected


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["work", "die", "look"]), st.integers(0, 2)), max_size=30
    )
)
def test_whoever_dies_whenever_every_count_counts_once(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        processes = {number: Process(folder, f"{number}-0") for number in range(3)}
        worked = 0
        for age, (step, number) in enumerate(steps):
            if step == "work":
                processes[number].work()
                worked += 1
            elif step == "die":
                processes[number].die()
                processes[number] = Process(folder, f"{number}-{age + 1}")
            else:
                assert shown(folder).get('requests_total{model="chat"}', 0) == worked
        assert shown(folder).get('requests_total{model="chat"}', 0) == worked
        for process in processes.values():
            process.die()
