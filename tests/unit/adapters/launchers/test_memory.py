import os
from pathlib import Path

from tiffin.adapters.launchers.memory import resident_bytes

PAGE = os.sysconf("SC_PAGE_SIZE")


def process(proc: Path, pid: int, pages: int, *threads: str) -> None:
    for number, children in enumerate(threads or ("",)):
        task = proc / str(pid) / "task" / str(pid + number)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
    (proc / str(pid) / "statm").write_text(f"999 {pages} 3 1 0 5 0\n")


def test_a_process_counts_with_all_that_any_of_its_threads_started(tmp_path: Path) -> None:
    process(tmp_path, 10, 100, "", "20 30 ")
    process(tmp_path, 20, 7)
    process(tmp_path, 30, 1, "40 ")
    process(tmp_path, 40, 2)
    process(tmp_path, 50, 1000)
    assert resident_bytes(10, tmp_path) == 110 * PAGE


def test_what_has_gone_counts_for_nothing(tmp_path: Path) -> None:
    process(tmp_path, 10, 5, "11 ")
    assert resident_bytes(10, tmp_path) == 5 * PAGE
    assert resident_bytes(12, tmp_path) == 0


def test_this_very_process_has_some() -> None:
    assert resident_bytes(os.getpid()) > 1 << 20
