"""The account of a request as versioned values: they feed journal, metrics, log and trace alike.

They hold no cycles, so the garbage collector needn't look at them (`gc=False`).
"""

from enum import Enum

import msgspec

from tiffin.types.usage import Usage

EVENT_VERSION = 1


class Outcome(Enum):
    """How an account ends; there is no other way."""

    OK = "ok"
    PARTIAL = "partial"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"
    LOST = "lost"


class Opened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="opened"):
    """Written before any work. `at_ns` is UTC.

    `project` is the key's part of its tenant; `end_user` and `tag` are what the client says for
    whom, and as a part of which workflow, it asks: bounded, and nothing personal.
    """

    v: int = EVENT_VERSION
    id: str
    at_ns: int
    tenant: str
    key: str
    endpoint: str
    trace_id: str = ""
    client_id: str = ""
    project: str = ""
    end_user: str = ""
    tag: str = ""


class Attempt(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="attempt"
):
    """One try at one target. `error` is a slug, empty where it went well; `placed` is why it went
    to that one of several replicas, empty where there was no choice."""

    n: int
    target: str
    started_ns: int
    ended_ns: int
    status: int = 0
    error: str = ""
    placed: str = ""


class Closed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="closed"):
    """Written once, after the last byte was handed to the socket. Times are nanoseconds.

    `ttft_ns` is from opening to the first byte of content handed over, 0 where none was. The tenant
    pays `cost_pico` for it, whole pico-units (10⁻¹²) of `currency`, empty where nothing has a
    price; `loss_pico` is what somebody else is paid for what nobody got. `retried_ns` is device
    time of attempts before the last, which was at the model `target`: an `upstream` is one that is
    paid for each use. `end_user` is whom it is for where its body says that, and no header did. So
    many `kept_inputs` of a request for vectors were answered by the cache.
    """

    v: int = EVENT_VERSION
    id: str
    at_ns: int
    outcome: Outcome
    status: int
    error: str = ""
    model: str = ""
    revision: str = ""
    snapshot: int = 0
    cache: str = ""
    kept_inputs: int = 0
    duration_ns: int = 0
    ttft_ns: int = 0
    usage: Usage = Usage()
    cost_pico: int = 0
    loss_pico: int = 0
    currency: str = ""
    retried_ns: int = 0
    target: str = ""
    upstream: bool = False
    end_user: str = ""
    attempts: list[Attempt] = []


Event = Opened | Closed
