"""Rules about devices and launched engines."""

import pytest

from tiffin.config.load import load_text
from tiffin.config.models import LaunchedModel
from tiffin.errors import ConfigInvalid

HEAD = """
version = 1
[tenants.t.keys.k]
key_env = "K"
[models.m]
runtime = "launched"
"""


def loaded(text: str) -> LaunchedModel:
    model = load_text((HEAD + text).encode(), source="x").config.models["m"]
    assert isinstance(model, LaunchedModel)
    return model


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('engine = "vllm"', "exactly one of model, files"),
        ('engine = "vllm"\nmodel = "m"\ndevices = ["gpu"]', 'expected "auto"'),
        ('engine = "vllm"\nmodel = "m"\ndevices = []', 'expected "auto"'),
        ('engine = "vllm"\nmodel = "m"\ndevices = ["cpu", "cuda:0"]', 'expected "auto"'),
        ('engine = "vllm"\nmodel = "m"\ndevices = ["cuda:0", "cuda:0"]', "twice"),
        ('engine = "vllm"\nmodel = "m"\ndevices = ["cuda:0", "cuda:1"]', "tensor_parallel is: 1"),
        ('engine = "vllm"\nmodel = "m"\ndevices = ["cuda:0"]\nreplicas = 2', "device_memory_mb"),
        ('engine = "vllm"\nmodel = "m"\nexecutable = "bin/vllm"', "absolute path"),
        ('engine = "command"\nargs = ["{port}"]\ntrusted = true', "executable: missing"),
        ('engine = "command"\nexecutable = "x"\nargs = ["{port}"]', "trusted: expected true"),
        ('engine = "command"\nexecutable = "x"\ntrusted = true', "expected {port}"),
    ],
)
def test_what_cannot_be_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        loaded(text)


@pytest.mark.parametrize(
    "text",
    [
        'engine = "vllm"\nmodel = "m"',
        'engine = "sglang"\nmodel = "m"\ndevices = ["cpu"]',
        'engine = "tgi"\nmodel = "m"\ndevices = ["GPU-0f0e1d2c", "cuda:1"]\ntensor_parallel = 2',
        'engine = "command"\nexecutable = "x"\nargs = ["--port={port}"]\ntrusted = true',
    ],
)
def test_what_can_be_is_taken(text: str) -> None:
    assert loaded(text).slots == 16
