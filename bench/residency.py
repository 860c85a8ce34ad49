"""Models that share a machine's memory: swaps, cold starts, and whether loads leave anything.

    python bench/residency.py [--loads 100] [--runtimes echo,onnx,llamacpp]

Starts servers of its own in a temporary folder and ends them; prints a line a measurement.
"""

import argparse
import hashlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.real_models import model_file
from tests.system.server import Server, until
from tiffin.control.fleet.status import State

SETTLING = 10
PARTS = 10
T_95 = 2.262
"""Student's t at 97.5 % with PARTS + 1 - 2 degrees of freedom."""
BOUNDED = {
    "logs_kb": "lines for each load, bounded by rotation",
    "accounts_kb": "an entry for each answer, bounded by how many are kept",
}
ON_DEMAND = 'keep = "on-demand"\nidle_s = 2\nhold_s = {hold_s}\nmemory_mb = 100\n'


@contextmanager
def server(models: str, settings: str = "") -> Iterator[Server]:
    """A server of these models, with more settings of `[server]`."""
    with tempfile.TemporaryDirectory() as folder:
        one = Server(Path(folder), models)
        text = one.config.read_text()
        one.config.write_text(text.replace("[server]\n", f"[server]\n{settings}\n", 1))
        try:
            yield one.start()
        finally:
            one.stop()
            one.close()


def swaps() -> None:
    """A B A A C A B C, nearly together, with memory for one."""
    models = "".join(
        f'[models.{name}]\nruntime = "echo"\nload_ms = 300\n{ON_DEMAND.format(hold_s=1)}'
        for name in "ABC"
    )
    with server(models, "memory_mb = 150") as one:
        answers: list[tuple[int, float]] = []

        def ask(model: str) -> None:
            began = time.monotonic()
            answers.append((one.chat(model).status_code, time.monotonic() - began))

        threads = [threading.Thread(target=ask, args=(model,)) for model in "ABAACABC"]
        for thread in threads:
            thread.start()
            time.sleep(0.02)
        for thread in threads:
            thread.join()
        time.sleep(1.5)
        loads = metric(one, "tiffin_model_loads_total")
        good = sum(status == 200 for status, _ in answers)
        longest = max(took for _, took in answers)
        print(f"swaps: {good} of 8 answered, {loads - 1:.0f} swaps, longest wait {longest:.1f} s")


def cold_starts(runtime: str, section: str, ask: Callable[[Server, str], int], tries: int) -> None:
    """The first answer after sleep, with and without a waiting process, beside the load itself."""
    model = f"[models.one]\n{section}{ON_DEMAND.format(hold_s=0)}"
    for warm in (0, 1):
        with server(model, f"warm_replicas = {warm}") as one:
            firsts, loads, differences = [], [], []
            for _ in range(tries):
                until(lambda: state(one) is State.ASLEEP, 30, one.explain)
                if warm:
                    until(lambda: one.status().warm == 1, 30, one.explain)
                time.sleep(3.0)
                began = time.monotonic()
                status = ask(one, "one")
                firsts.append(time.monotonic() - began)
                assert status == 200, status
                loads.append(one.until_ready("one").ready_ms / 1000)
                differences.append(firsts[-1] - loads[-1])
            first, load = statistics.median(firsts), statistics.median(loads)
            kept = "a waiting process" if warm else "a new process"
            print(
                f"cold start, {runtime}, {kept}: first answer {first:.2f} s, start to ready"
                f" {load:.2f} s (medians of {tries}), at most {max(differences):+.2f} s later"
            )


def drift(loads: int, *, failing: bool) -> None:
    """Load, ask, unload again and again: how much more of what the machine has with each load.

    What the first ten loads take is a beginning (caches, pools, modules). From there on a footprint
    is taken after each tenth part of the loads, and a line laid through each quantity's: flat is
    what the line's interval doesn't keep from being so.
    """
    fault = 'fail_load = "no"\n' if failing else ""
    with server(f'[models.one]\nruntime = "echo"\n{fault}') as one:
        one.until_ready("control")
        until(lambda: one.http.get("/metrics").status_code == 200, 30, one.explain)
        for _ in range(SETTLING):
            cycle(one, failing=failing)
        done, prints = [0], [footprint(one)]
        for part in range(1, PARTS + 1):
            done.append(loads * part // PARTS)
            for _ in range(done[-2], done[-1]):
                cycle(one, failing=failing)
            prints.append(footprint(one))
        what = "failing loads" if failing else "loads, answers and unloads"
        print(f"{loads} {what}, after {SETTLING} more that came before:")
        for name in prints[0]:
            said = [each[name] for each in prints]
            slope, apart = slope_of(done, said)
            low, high = slope - apart, slope + apart
            verdict = "flat" if low <= 0 else "grows"
            print(
                f"  {name}: {said[0]} -> {said[-1]} (between {min(said)} and {max(said)}),"
                f" {slope:+.3f} a load, 95 % from {low:+.3f} to {high:+.3f}:"
                f" {BOUNDED.get(name, verdict)}"
            )


def slope_of(at: Sequence[float], said: Sequence[float]) -> tuple[float, float]:
    """The slope of the line of least squares, and half its 95 % interval (Student's t)."""
    middle, level = statistics.fmean(at), statistics.fmean(said)
    spread = sum((x - middle) ** 2 for x in at)
    slope = sum((x - middle) * (y - level) for x, y in zip(at, said, strict=True)) / spread
    rest = sum((y - level - slope * (x - middle)) ** 2 for x, y in zip(at, said, strict=True))
    return slope, T_95 * (rest / (len(at) - 2) / spread) ** 0.5


def cycle(one: Server, *, failing: bool) -> None:
    """One life of the model."""
    one.http.post("/admin/v1/models/one/load").raise_for_status()
    if failing:
        until(lambda: state(one) is State.FAILED, 30, one.explain)
    else:
        one.until_ready("one")
        until(lambda: answers(one), 30, one.explain)
    one.http.post("/admin/v1/models/one/unload").raise_for_status()
    until(lambda: one.find("one") is None, 30, one.explain)


def answers(one: Server) -> bool:
    """Whether it does by now; each try is an entry on disk, so there aren't many."""
    if one.chat("one").status_code == 200:
        return True
    time.sleep(0.2)
    return False


def footprint(one: Server) -> dict[str, int]:
    """Memory (kB) and descriptors of the processes that stay, processes, files, kB on disk."""
    time.sleep(1.5)
    stay = [one.status().pid, *(p.pid for p in one.status().processes if p.role != "replica")]
    root = one.folder.root
    files = [path for path in root.rglob("*") if path.is_file() and "journal" not in path.parts]
    logs = [path for path in files if path.is_relative_to(one.folder.logs)]
    accounts = [path for path in files if path.name.startswith(one.folder.database.name)]
    others = set(files) - {*logs, *accounts}
    return {
        "memory_kb": sum(resident_kb(pid) for pid in stay),
        "descriptors": sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in stay),
        "processes": len(one.children()),
        "files": len(files),
        "disk_kb": sum(path.stat().st_size for path in others) // 1024,
        "logs_kb": sum(path.stat().st_size for path in logs) // 1024,
        "accounts_kb": sum(path.stat().st_size for path in accounts) // 1024,
    }


def resident_kb(pid: int) -> int:
    """What the kernel says a process has resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def state(one: Server) -> State | None:
    """Where the model is."""
    found = one.find("one")
    return found.state if found else None


def metric(one: Server, name: str) -> float:
    """The sum of a metric's series."""
    lines = one.http.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))


def chat(one: Server, model: str) -> int:
    """A short chat."""
    return one.chat(model, "Say hi.", max_tokens=1).status_code


def infer(one: Server, model: str) -> int:
    """A row of numbers."""
    row = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}
    return one.http.post(f"/v2/models/{model}/infer", json={"inputs": [row]}).status_code


def onnx_section(folder: Path) -> str:
    """A tiny graph."""
    from tests.onnx_graphs import doubling, written

    path = written(folder, doubling())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    file = f'{{ sources = ["file:{path}"], sha256 = "{digest}" }}'
    return f'runtime = "onnx"\nfiles = {{ "model.onnx" = {file} }}\n'


def llamacpp_section() -> str:
    """The smaller of the starter's language models."""
    path = model_file("chat-tiny")
    return (
        f'runtime = "llamacpp"\nsources = ["file:{path}"]\nsha256 = "{path.name}"\n'
        "context = 512\nslots = 1\n"
    )


def main() -> None:
    """Measure everything, one after the other."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--loads", type=int, default=100)
    arguments.add_argument("--tries", type=int, default=3)
    arguments.add_argument("--runtimes", default="echo,onnx,llamacpp")
    given = arguments.parse_args()
    swaps()
    with tempfile.TemporaryDirectory() as folder:
        makers: dict[str, Callable[[], tuple[str, Callable[[Server, str], int]]]] = {
            "echo": lambda: ('runtime = "echo"\n', chat),
            "onnx": lambda: (onnx_section(Path(folder)), infer),
            "llamacpp": lambda: (llamacpp_section(), chat),
        }
        for runtime in filter(None, given.runtimes.split(",")):
            section, ask = makers[runtime]()
            cold_starts(runtime, section, ask, given.tries)
    if given.loads:
        drift(given.loads, failing=False)
        drift(given.loads, failing=True)


if __name__ == "__main__":
    main()
