-- Messages to other programs: sent at least once, each with the key of what it tells, and kept when they were given up.
CREATE TABLE delivery (
    n             INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id     TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    key           TEXT    NOT NULL UNIQUE,
    target        TEXT    NOT NULL,
    body          TEXT    NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('queued', 'accepted', 'cancelled', 'dead_letter')),
    attempt_count INTEGER NOT NULL DEFAULT 0,
    available_at  INTEGER NOT NULL,
    lease_until   INTEGER, -- somebody is sending it
    last_error    TEXT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX delivery_due ON delivery (available_at) WHERE status = 'queued';
CREATE INDEX delivery_of_thread ON delivery (thread_id);
