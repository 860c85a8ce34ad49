"""The kinds of single settings: their type, their bounds, their unit."""

from typing import Annotated

from msgspec import Meta

YEAR_S = 31_536_000

Port = Annotated[int, Meta(ge=0, le=65_535)]
Positive = Annotated[int, Meta(ge=1)]
Replicas = Annotated[int, Meta(ge=1, le=64)]
Gateways = Annotated[int, Meta(ge=1, le=16)]
WarmReplicas = Annotated[int, Meta(ge=-1, le=16)]
Days = Annotated[int, Meta(ge=0, le=36_500)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=YEAR_S)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=YEAR_S)]
Milliseconds = Annotated[float, Meta(ge=0, le=1000 * YEAR_S)]
Weight = Annotated[float, Meta(gt=0, le=1000)]
Text = Annotated[str, Meta(min_length=1)]
RegionOrNone = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9-]{0,32}$(?!\n)",
        description="lower-case letters, digits and '-', no more than 32",
    ),
]
ApiVersion = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9.-]{0,32}$(?!\n)",
        description="letters, digits, '.' and '-', no more than 32",
    ),
]
TensorName = Annotated[str, Meta(min_length=1, max_length=512)]
Digest = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="64 lower-case hexadecimal digits")
]
DigestOrNone = Annotated[
    str, Meta(pattern=r"^([0-9a-f]{64})?$(?!\n)", description="64 lower-case hexadecimal digits")
]
