"""Random price books, workloads and lives of processes, for laws that hold for all of them."""

from typing import get_args

from hypothesis import strategies as st

from tiffin.config.prices import (
    BillKind,
    Credit,
    FixedPrice,
    MachinePrice,
    ModelPrice,
    Prices,
    Rate,
)
from tiffin.ledger.fit import Fit
from tiffin.ledger.segments import DAY_NS
from tiffin.ports.ledger import HALF_HOUR_NS, InvoiceLine, Ran, Span, Sum

START_NS = 20_454 * DAY_NS  # 2026-01-01
MODELS = ("chat", "fraud", "cloud")
DAYS = [f"2026-01-0{day}" for day in range(1, 6)]

amounts = st.decimals(0, 10_000, places=6, allow_nan=False).map(lambda d: format(d, "f"))
days = st.sampled_from(DAYS)
currencies = st.sampled_from(["", "INR", "USD"])
counts = st.integers(0, 10**12)

machines = st.builds(
    MachinePrice,
    name=st.sampled_from(["node", "gpu"]),
    terms=st.sampled_from(["on-demand", "reserved", "owned"]),
    hourly=amounts,
    accelerators=st.integers(0, 2),
    count=st.integers(1, 3),
    purchase=amounts,
    residual=amounts,
    years=st.integers(0, 4),
    spare=st.sampled_from(["0", "0.1"]),
    watts=amounts,
    kwh=st.sampled_from(["0", "9.5"]),
    cooling=st.sampled_from(["0", "0.333333"]),
    currency=currencies,
    since=days,
)
fixed = st.builds(
    FixedPrice,
    name=st.sampled_from(["disk", "team"]),
    kind=st.sampled_from(["storage", "transfer", "logs", "people"]),
    amount=amounts,
    quantity=st.sampled_from(["1", "12.5"]),
    per=st.sampled_from(["hour", "day", "month", "year"]),
    currency=currencies,
    since=days,
)
credits_ = st.builds(
    Credit,
    name=st.sampled_from(["grant", "promo"]),
    amount=amounts,
    covers=st.lists(st.sampled_from(get_args(BillKind)), max_size=2, unique=True),
    currency=currencies,
    since=days,
    until=st.sampled_from(["", "2026-01-06", "2026-01-07"]),
)
books = st.builds(
    Prices,
    utc_offset=st.sampled_from(["+00:00", "+05:30"]),
    rates=st.just(
        [
            Rate(of="USD", rate="88.751", since="2025-01-01"),
            Rate(of="USD", rate="89.0333", since="2026-01-03T07:10+00:00"),
        ]
    ),
    machines=st.lists(machines, max_size=3, unique_by=lambda one: (one.name, one.since)),
    models=st.just([ModelPrice(model="cloud", input="1", since="2026-01-01")]),
    fixed=st.lists(fixed, max_size=3, unique_by=lambda one: (one.name, one.since)),
    credits=st.lists(credits_, max_size=2),
)
sums = st.builds(
    Sum,
    tenant=st.sampled_from(["acme", "zen", "_shadow", ""]),
    project=st.sampled_from(["", "p"]),
    key=st.just("k"),
    tag=st.sampled_from(["", "nightly"]),
    model=st.sampled_from(["best", "chat"]),
    target=st.sampled_from([*MODELS, ""]),
    upstream=st.booleans(),
    outcome=st.sampled_from(["ok", "partial", "cancelled", "failed", "refused", "lost"]),
    measured=st.booleans(),
    currency=st.sampled_from(["INR", "USD"]),
    requests=st.integers(1, 10**6),
    prompt_tokens=counts,
    cached_tokens=counts,
    completion_tokens=counts,
    device_ns=counts,
    retried_ns=counts,
    cost_pico=counts,
    loss_pico=counts,
)
lives = st.builds(
    lambda name, kind, model, since, lasts, share, device, opaque: Ran(
        name=name,
        kind=kind,
        model="" if kind == "machine" else model,
        since_ns=START_NS + since,
        until_ns=START_NS + since + lasts,
        share=share,
        slots=share,
        device="cpu" if kind == "machine" else device,
        opaque=opaque,
    ),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["machine", "load", "loaded"]),
    st.sampled_from(MODELS),
    st.integers(0, 5 * DAY_NS),
    st.integers(0, 3 * DAY_NS),
    st.integers(1, 8),
    st.sampled_from(["cpu", "gpu"]),
    st.booleans(),
)
fits = st.dictionaries(
    st.sampled_from(MODELS),
    st.builds(
        Fit,
        model=st.just(""),
        prefill_ps=st.integers(0, 10**9),
        cached_ps=st.integers(0, 10**9),
        decode_ps=st.integers(0, 10**12),
        error=st.just(0.0),
        rows=st.just(9),
    ),
)
spans = st.tuples(st.integers(0, 300), st.integers(1, 300)).map(
    lambda at: Span(START_NS + at[0] * HALF_HOUR_NS, START_NS + (at[0] + at[1]) * HALF_HOUR_NS)
)
invoices = st.builds(
    lambda kind, since, lasts, amount: InvoiceLine(
        since_ns=START_NS + since,
        until_ns=START_NS + since + lasts,
        name="x",
        kind=kind,
        amount_pico=amount,
        currency="USD",
    ),
    st.sampled_from(["machines", "storage"]),
    st.integers(0, 5 * DAY_NS),
    st.integers(0, 5 * DAY_NS),
    st.integers(-(10**12), 10**15),
)
