"""What a machine computes with: its processors and accelerators, as they were at one moment."""

import msgspec

CPU = "cpu"
NVLINK = "nvlink"
NEAREST_FIRST = (NVLINK, "board", "switch", "switches", "bridge", "node", "machine")
"""How two devices reach each other, fastest first: NVLink, else what of PCIe they share."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A way to another device: `kind` is one of `NEAREST_FIRST`, `lanes` counts NVLinks."""

    peer: str
    kind: str
    lanes: int = 0


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that models compute on; what isn't known is None, or empty.

    `id` never changes and is unique in the world but for `cpu`; `index` numbers devices of a kind.
    `utilization` is a share of 1 since the last look or over the driver's last period; `energy_j`
    counts from the driver's start. `parent` names the device that this one is a part of (MIG);
    what has parts isn't computed on itself. A processor has `cores` that this process may use
    (a share of one too), `instructions` that matter to models, and `nodes` of memory.
    """

    id: str
    kind: str
    name: str
    index: int = 0
    memory_total_bytes: int = 0
    memory_free_bytes: int = 0
    utilization: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    bus: str = ""
    parent: str = ""
    links: tuple[Link, ...] = ()
    cores: float = 0.0
    instructions: tuple[str, ...] = ()
    nodes: int = 0


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """All devices at a moment, and by kind the reason why there are none of it.

    Where the reason is that nobody could look (`unseen`), there may be some all the same.
    """

    seen_ns: int = 0
    devices: tuple[Device, ...] = ()
    absent: dict[str, str] = {}
    unseen: tuple[str, ...] = ()
