"""Importing a module does nothing but define names, and the inside stays light."""

import json

from tests.arch.tree import SOURCE, in_fresh_python, modules

# Watches one interpreter import everything: files opened to write, sockets, processes, threads,
# and reads of the environment whose caller is a file of ours.
WATCH = """
import json, os, sys, threading
from collections.abc import MutableMapping
effects = []
source = {source!r}

def ours(frame):
    while frame and frame.f_code.co_filename in (os.__file__, "<string>", "<frozen os>"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(source)

def audit(event, args):
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        effects.append([event, str(args[0])])
    elif event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.posix_spawn", "os.fork",
                   "os.mkdir", "os.remove", "os.rename", "signal.signal"):
        effects.append([event, str(args)])

class Spy(dict):
    def __getitem__(self, name):
        if ours(sys._getframe(1)):
            effects.append(["environment", name])
        return super().__getitem__(name)
    def get(self, name, default=None):
        if ours(sys._getframe(1)):
            effects.append(["environment", name])
        return super().get(name, default)

os.environ = Spy(os.environ)
sys.addaudithook(audit)
for name in {names!r}:
    __import__(name)
    if threading.active_count() > 1:
        effects.append(["thread", name])
        break
print(json.dumps([effects, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""

INSIDE = (
    "types",
    "errors",
    "config",
    "ports",
    "dialects",
    "telemetry",
    "gateway",
    "serving",
    "control",
)
HEAVY = {
    "aiohttp", "cryptography", "httpx", "numpy", "obstore", "onnxruntime", "openai", "pip",
    "pydantic", "ray", "requests", "rich", "sqlite3", "starlette", "torch", "typer", "uvicorn",
    "xllamacpp",
}  # fmt: skip
NUMERIC = ("tiffin.dialects.oip.arrays", "tiffin.dialects.oip.binding", "tiffin.serving.")


def importing(names: list[str]) -> tuple[list[list[str]], set[str]]:
    """The effects of importing these modules in a new interpreter, and what it loaded in all."""
    printed = in_fresh_python(WATCH.format(source=str(SOURCE), names=names))
    effects, loaded = json.loads(printed)
    return effects, set(loaded)


def test_importing_any_module_has_no_effects() -> None:
    effects, _ = importing([module.name for module in modules()])
    assert effects == []


def inside() -> list[str]:
    names = [module.name for module in modules()]
    return [name for name in names if name.split(".")[1:2] and name.split(".")[1] in INSIDE]


def test_the_inside_loads_no_heavy_library() -> None:
    effects, loaded = importing([name for name in inside() if not name.startswith(NUMERIC)])
    assert effects == []
    assert loaded & HEAVY == set()


def test_what_is_beside_a_model_loads_arrays_and_nothing_heavier() -> None:
    effects, loaded = importing([name for name in inside() if name.startswith(NUMERIC)])
    assert effects == []
    assert loaded & (HEAVY - {"rich", "numpy"}) == set()


def test_the_command_line_starts_light() -> None:
    _, loaded = importing(["tiffin.cli.main"])
    assert loaded & (HEAVY - {"typer", "rich"}) == set()
