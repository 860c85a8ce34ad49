"""Commands that only look at files: writing the template, checking, showing a model."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tiffin.adapters.sources.registry import default_sources
from tiffin.adapters.stores.artifacts import LocalArtifactStore
from tiffin.app.calibrate import table
from tiffin.cli import template
from tiffin.cli.locate import configured, folder
from tiffin.config.environ import environment
from tiffin.config.models import LlamacppModel, files_of
from tiffin.config.objectives import declared, only_kept
from tiffin.config.policy import effective
from tiffin.config.secrets import unset_variables
from tiffin.config.tls import credentials_of
from tiffin.control.catalogue.pull import artifacts_of, check
from tiffin.control.engines.calibrations import Calibrations, measured_as
from tiffin.errors import ConfigInvalid, Conflict, ModelNotFound
from tiffin.ports.artifacts import shown
from tiffin.types.paths import calibrations


def write_template(path: Path, *, overwrite: bool, extras: Sequence[str] = ()) -> None:
    """Write the commented configuration, and the sections of extras after it.

    Raises `Conflict` where a file would be lost, `ConfigInvalid` for an extra that isn't there.
    """
    for name in extras:
        if name not in template.EXTRAS:
            known = ", ".join(template.EXTRAS)
            raise ConfigInvalid(f"there is no extra '{name}'; there are: {known}")
    parts = [template.text(), *(template.sections_of(name) for name in extras)]
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write("\n".join(parts))
    except FileExistsError:
        raise Conflict(f"{path} exists; --force overwrites it") from None
    except OSError as cause:
        raise Conflict(f"{path} can't be written: {cause.strerror}") from cause


def resolved(given: Path | None) -> str:
    """A configuration with everything filled in as JSON, its hash, and the limits it comes to.

    Raises `ConfigInvalid`.
    """
    loaded = configured(given)
    sources = default_sources(environment())
    for name, model in loaded.config.models.items():
        for artifact in artifacts_of(name, model):
            check(artifact, sources)
    tree = msgspec.json.format(msgspec.json.encode(loaded.tree), indent=2).decode()
    lacking = [
        f"{where}: the variable {name} isn't set here; a server needs it to start\n"
        for where, name in unset_variables(loaded.config)
    ]
    for section, named in (("models", loaded.config.models), ("routes", loaded.config.routes)):
        for name, settings in named.items():
            if kept := only_kept(settings.slo):
                where = f"{section}.{name}.slo"
                lacking.append(f"{where}: nothing acts on {', '.join(kept)} yet; kept and shown\n")
    tls = loaded.config.server.tls
    if tls.on and not tls.key_command:  # nothing is started here
        try:
            credentials_of(tls)
        except ConfigInvalid as failure:
            lacking.append(f"{failure}; a server needs it to start\n")
    limits = "".join(f"\nlimit: {line}" for line in effective(loaded.config))
    return f"{tree}\n\n{''.join(lacking)}valid: {loaded.source}, sha256 {loaded.sha256}{limits}"


def show_model(name: str, given: Path | None) -> None:
    """Print what is configured for a model, and whether its file is here."""
    loaded = configured(given)
    config = loaded.config
    model = config.models.get(name)
    if model is None:
        known = ", ".join(config.models) or "none"
        raise ModelNotFound(f"there is no model {name} in the configuration; known are: {known}")
    print(f"name             {name}")
    for field, value in msgspec.to_builtins(model).items():
        if field not in ("sources", "files", "slo") and value not in ("", 0, None):
            print(f"{field:<16} {value}")
    for objective, value in declared(model.slo).items():
        print(f"slo              {objective} {value:g}")
    here = folder(config, None)
    if isinstance(model, LlamacppModel) and model.task == "generate":
        kept = Calibrations(calibrations(here)).of(measured_as(model))
        for line in table(kept) if kept else [f"nothing yet; tiffin models calibrate {name}"]:
            print(f"measured         {line}")
    store = LocalArtifactStore(here.artifacts)
    for known_as, file in files_of(model).items():
        found = store.find(file.sha256)
        print(f"file             {known_as}")
        for source in file.sources:
            print(f"  source         {shown(source)}")
        print(f"  here           {found or 'not fetched yet; tiffin models pull ' + name}")
