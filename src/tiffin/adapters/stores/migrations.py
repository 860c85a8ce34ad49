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
)
