"""A pipeline as what a replica hosts: its functions found, its models followed."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from tiffin.api.pipeline import PipelineApi
from tiffin.app.adapters import imported
from tiffin.app.hosted import Surroundings
from tiffin.app.peers import Peers
from tiffin.config.models import PipelineModel
from tiffin.errors import LoadFailed
from tiffin.ports.exchange import Exchange
from tiffin.serving.pipeline.functions import Function
from tiffin.serving.pipeline.measures import PipelineMeasures
from tiffin.serving.pipeline.replica import PipelineReplica
from tiffin.telemetry import log

DOCUMENTS = "tiffin.adapters.documents."

FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "ocr.read": DOCUMENTS + "steps:read",
        "ocr.detect_input": DOCUMENTS + "steps:detect_input",
        "ocr.find_lines": DOCUMENTS + "steps:find_lines",
        "ocr.orient_input": DOCUMENTS + "steps:orient_input",
        "ocr.recognise_input": DOCUMENTS + "steps:recognise_input",
        "ocr.spell": DOCUMENTS + "steps:spell",
        "ocr.arrange": DOCUMENTS + "steps:arrange",
    }
)
"""Functions that Tiffin has, by the name that a step's section calls them."""

EXTRAS: Mapping[str, str] = MappingProxyType({"ocr": "ocr"})
"""The extra that the functions of a family need."""


class PipelineHosted:
    """Satisfies `app.hosted.Hosted` for a graph of models and functions."""

    def __init__(self, around: Surroundings) -> None:
        deployment = around.deployment
        self._pipeline = msgspec.json.decode(deployment.spec, type=PipelineModel)
        self._files = {name: Path(file.path) for name, file in deployment.files.items()}
        self._peers = Peers(deployment, around.snapshot, around.meter)
        self._watching: asyncio.Task[None] | None = None
        self._measures = PipelineMeasures(around.meter, deployment.model)
        self._replica = PipelineReplica(
            self._pipeline,
            self._peers.backends,
            deployment.threads,
            around.clock,
            around.progress,
            self._measures,
        )
        self._api = PipelineApi(
            self._replica,
            around.meter,
            revision=deployment.revision,
            max_body_bytes=around.max_body_bytes,
        )

    async def load(self) -> None:
        """Find the functions, wait for the models, check every edge; raises `LoadFailed`."""
        self._watching = asyncio.create_task(self._peers.watch_for_ever())
        await self._replica.load(self._functions)

    async def warm_up(self) -> None:
        """A request through all steps; ready afterwards. Raises `LoadFailed`."""
        await self._replica.warm_up()

    async def answer(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        await self._api(exchange)

    def look(self) -> None:
        """Note how full it is, and where its models answer now."""
        self._peers.follow()
        self._peers.tell()
        self._measures.look(self._replica.lanes)

    async def drain(self, within_s: float) -> None:
        """Take nothing more, let what runs finish."""
        await self._replica.drain(within_s)

    async def close(self) -> None:
        """Give threads and connections back."""
        self._replica.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._peers.close()

    def _functions(self) -> dict[str, Function]:
        own: dict[str, dict[str, Any]] = {}
        found = {}
        for step in self._pipeline.steps:
            if not step.function:
                continue
            file, colon, name = step.function.partition(":")
            if colon:
                if file not in own:
                    own[file] = self._code(file)
                function = own[file].get(name)
            else:
                function = built_in(step.function)
            found[step.name] = Function(step.function, function, step.options, self._files)
        return found

    def _code(self, file: str) -> dict[str, Any]:
        """The names that a file of the pipeline's defines; its code is the operator's own."""
        if not self._pipeline.trusted:
            raise LoadFailed(f"'{file}' is code, and the pipeline isn't trusted to run any")
        names: dict[str, Any] = {"__name__": file.removesuffix(".py"), "__file__": file}
        try:
            exec(compile(self._files[file].read_bytes(), file, "exec"), names)  # noqa: S102 - trusted
        except Exception as error:  # noqa: BLE001 - whatever the code does, it is told
            log.error("the pipeline's code failed while it loaded", exc_info=True)
            kind = type(error).__name__
            raise LoadFailed(f"'{file}' can't be run: {kind}; the log says where") from None
        return names


def built_in(name: str) -> Any:
    """One of Tiffin's own functions; raises `LoadFailed`."""
    if name not in FUNCTIONS:
        known = ", ".join(sorted(FUNCTIONS))
        raise LoadFailed(f"there is no function '{name}'; there are: {known}")
    try:
        return imported(FUNCTIONS[name])
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(name.partition(".")[0], "")
        raise LoadFailed(
            f"the function '{name}' needs {error.name}: pip install 'tiffin[{extra}]'"
        ) from None
