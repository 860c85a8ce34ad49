"""`[models.NAME]` with `runtime = "remote"`: a model that somebody else's server answers for."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from tiffin.config.fields import (
    ApiVersion,
    Count,
    Days,
    Positive,
    RegionOrNone,
    Seconds,
    SecondsOrNone,
)
from tiffin.config.model_sections import ModelCommon
from tiffin.types.profiles import profile_of
from tiffin.types.residency import DataClass


class UpstreamKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[models.NAME.keys]]`: one of several keys; exactly one of the three says where it is."""

    key_env: str = ""
    key_file: str = ""
    key_command: list[str] = []


class RemoteModel(
    ModelCommon,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="runtime",
    tag="remote",
):
    """Another server's model. `protocol` is `openai` or `oip` (Open Inference Protocol V2).

    `profile` names what kind of server it is, and so what it can't do (empty: all that OpenAI's
    can). `url` ends before `/chat/completions`, or before `/v2`; a profile may know it. Azure's
    `model` is the deployment, `api_version` its API's, SageMaker's the endpoint. It computes in
    `region`, which addresses of some clouds say, and may be sent data up to `data_class`; where
    that isn't said, what a key calls public, or nothing. It keeps what it is sent for
    `retains_days` and `trains` on it, as far as its contract says.

    With several `keys` requests are spread over those that the server lets in.
    `links` says whether addresses of images and files are passed on, which that server then
    fetches from where it is (empty: to those that are out on the internet, by their profile).

    A request is tried here `attempts` times, and each try given up after `total_timeout_s` (0: when
    the request's own time is over), or where a stream brings less than `min_bytes_per_s` in any
    five seconds (0: as slow as it is); an event with a word takes some 200.
    """

    url: str = ""
    protocol: Literal["openai", "oip"] = "openai"
    profile: str = ""
    model: str = ""
    api_version: ApiVersion = ""
    key_env: str = ""
    key_file: str = ""
    key_command: list[str] = []
    keys: list[UpstreamKey] = []
    max_concurrency: Positive = 64
    queue: Count = 256
    connect_timeout_s: Seconds = 5.0
    first_byte_timeout_s: Seconds = 60.0
    between_bytes_timeout_s: Seconds = 60.0
    total_timeout_s: SecondsOrNone = 0.0
    min_bytes_per_s: Count = 0
    attempts: Positive = 2
    tools: bool = True
    links: Literal["", "pass", "refuse"] = ""
    region: RegionOrNone = ""
    data_class: DataClass = ""
    retains_days: Days | None = None
    trains: bool | None = None

    def every_key(self, name: str) -> "Iterator[tuple[str, str, RemoteModel | UpstreamKey]]":
        """Each place of a key: a name for it that no other has, its path below the model's section
        (empty: that itself), and what refers to it. `name` is the model's."""
        for number, key in enumerate(self.keys):
            yield f"{name}#{number}", f".keys[{number}]", key
        if not self.keys:
            yield name, "", self

    @property
    def address(self) -> str:
        """Where it is: as its section says, or as its profile knows."""
        return self.url or profile_of(self.profile).url

    @property
    def located(self) -> str:
        """The region that it computes in: as its section says, or as its address does."""
        return self.region or next(iter(profile_of(self.profile).regions(self.address)), "")
