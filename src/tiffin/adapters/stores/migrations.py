"""The database's schema as numbered steps that only go forward; the number is `user_version`.

Each step keeps what the version before reads: first a step adds, a later release's step removes.
What few values describe (who, where, how it ended) is a `heading`, named once and not in each row.
"""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE heading (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL, key TEXT NOT NULL, endpoint TEXT NOT NULL,
        model TEXT NOT NULL, revision TEXT NOT NULL, outcome TEXT NOT NULL,
        status INTEGER NOT NULL, error TEXT NOT NULL, cache TEXT NOT NULL,
        UNIQUE (tenant, key, endpoint, model, revision, outcome, status, error, cache)
    );
    CREATE TABLE account (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        heading INTEGER NOT NULL REFERENCES heading (id),
        opened_ns INTEGER NOT NULL, closed_ns INTEGER NOT NULL,
        duration_ns INTEGER NOT NULL, ttft_ns INTEGER NOT NULL,
        queue_ns INTEGER NOT NULL, device_ns INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, measured INTEGER NOT NULL,
        snapshot INTEGER NOT NULL,
        trace_id TEXT NOT NULL, client_id TEXT NOT NULL, attempts TEXT NOT NULL
    );
    CREATE TABLE total (
        heading INTEGER PRIMARY KEY REFERENCES heading (id),
        requests INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, device_ns INTEGER NOT NULL
    );
    CREATE TABLE opening (
        id TEXT PRIMARY KEY,
        epoch TEXT NOT NULL, opened_ns INTEGER NOT NULL,
        tenant TEXT NOT NULL, key TEXT NOT NULL, endpoint TEXT NOT NULL,
        trace_id TEXT NOT NULL, client_id TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE position (
        epoch TEXT PRIMARY KEY,
        segment INTEGER NOT NULL, byte INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE account ADD COLUMN prepare_ns INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN rows INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN pages INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN pixels INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN audio_ms INTEGER NOT NULL DEFAULT 0;
    """,
    # Amounts in the ledger are whole units and pico-units beside them, so that sums don't overflow.
    """
    ALTER TABLE account ADD COLUMN reasoning_tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN retried_ns INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN cost_pico INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN loss_pico INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN currency TEXT NOT NULL DEFAULT '';
    ALTER TABLE account ADD COLUMN target TEXT NOT NULL DEFAULT '';
    ALTER TABLE account ADD COLUMN upstream INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN project TEXT NOT NULL DEFAULT '';
    ALTER TABLE account ADD COLUMN end_user TEXT NOT NULL DEFAULT '';
    ALTER TABLE account ADD COLUMN tag TEXT NOT NULL DEFAULT '';
    ALTER TABLE opening ADD COLUMN project TEXT NOT NULL DEFAULT '';
    ALTER TABLE opening ADD COLUMN end_user TEXT NOT NULL DEFAULT '';
    ALTER TABLE opening ADD COLUMN tag TEXT NOT NULL DEFAULT '';
    CREATE TABLE ledger_key (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL, project TEXT NOT NULL, key TEXT NOT NULL, tag TEXT NOT NULL,
        model TEXT NOT NULL, target TEXT NOT NULL, upstream INTEGER NOT NULL,
        outcome TEXT NOT NULL, measured INTEGER NOT NULL, currency TEXT NOT NULL,
        UNIQUE (tenant, project, key, tag, model, target, upstream, outcome, measured, currency)
    );
    CREATE TABLE ledger (
        half_hour INTEGER NOT NULL,
        ledger_key INTEGER NOT NULL REFERENCES ledger_key (id),
        requests INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,
        device_ns INTEGER NOT NULL, retried_ns INTEGER NOT NULL,
        rows INTEGER NOT NULL, pages INTEGER NOT NULL, audio_ms INTEGER NOT NULL,
        cost_units INTEGER NOT NULL, cost_pico INTEGER NOT NULL,
        loss_units INTEGER NOT NULL, loss_pico INTEGER NOT NULL,
        PRIMARY KEY (half_hour, ledger_key)
    ) WITHOUT ROWID;
    CREATE TABLE run (
        name TEXT NOT NULL, kind TEXT NOT NULL, since_ns INTEGER NOT NULL,
        until_ns INTEGER NOT NULL, model TEXT NOT NULL,
        share INTEGER NOT NULL, slots INTEGER NOT NULL, device TEXT NOT NULL,
        PRIMARY KEY (name, kind, since_ns)
    ) WITHOUT ROWID;
    CREATE TABLE invoice_line (
        invoice TEXT NOT NULL, line INTEGER NOT NULL,
        since_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL,
        name TEXT NOT NULL, kind TEXT NOT NULL,
        units INTEGER NOT NULL, pico INTEGER NOT NULL, currency TEXT NOT NULL,
        PRIMARY KEY (invoice, line)
    ) WITHOUT ROWID;
    """,
    "ALTER TABLE run ADD COLUMN opaque INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE account ADD COLUMN kept_inputs INTEGER NOT NULL DEFAULT 0;",
)
