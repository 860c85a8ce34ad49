"""Which source serves which scheme."""

from collections.abc import Mapping

from tiffin.adapters.sources.bundled import BundledSource
from tiffin.adapters.sources.file import FileSource
from tiffin.adapters.sources.hub import PUBLIC_HUB, HubSource
from tiffin.adapters.sources.objects import ObjectSource
from tiffin.adapters.sources.package import PackageSource
from tiffin.adapters.sources.web import WebSource
from tiffin.ports.artifacts import ArtifactSource


def default_sources(environ: Mapping[str, str]) -> dict[str, ArtifactSource]:
    """Every scheme's source; libraries are loaded when one is used.

    `environ` is the process's: pip runs in it, `HF_TOKEN` and `HF_ENDPOINT` are the hub's.
    """
    web = WebSource()
    hub = HubSource(
        web,
        base=environ.get("HF_ENDPOINT") or PUBLIC_HUB,
        token=environ.get("HF_TOKEN", ""),
    )
    objects = ObjectSource()
    return {
        "pypi": PackageSource(environ),
        "hf": hub,
        "https": web,
        "http": web,
        "file": FileSource(),
        "package": BundledSource(),
        "s3": objects,
        "gs": objects,
        "az": objects,
    }
