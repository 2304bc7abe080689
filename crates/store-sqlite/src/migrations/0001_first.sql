-- Times are Unix milliseconds. `body` columns hold our types as JSON; the columns beside them are what is asked for.
-- `n` counts rows in the order of their birth, so that no order depends on a clock.

CREATE TABLE thread (
    n          INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    title      TEXT    NOT NULL,
    cwd        BLOB    NOT NULL, -- the path's bytes: it need not be UTF-8
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    messages   INTEGER NOT NULL DEFAULT 0 -- how many were appended: a missing last one is seen too
) STRICT;

CREATE TABLE message (
    thread_id  TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    run_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    UNIQUE (thread_id, seq)
) STRICT;

CREATE TABLE thread_state (
    thread_id TEXT NOT NULL PRIMARY KEY REFERENCES thread (id) ON DELETE CASCADE,
    body      TEXT NOT NULL
) STRICT;

-- Who may write to a thread. `token` is null when nobody does; the epoch never goes back.
CREATE TABLE lease (
    thread_id TEXT    NOT NULL PRIMARY KEY REFERENCES thread (id) ON DELETE CASCADE,
    epoch     INTEGER NOT NULL,
    token     TEXT,
    owner     TEXT
) STRICT;

CREATE TABLE run (
    n         INTEGER PRIMARY KEY,
    id        TEXT    NOT NULL UNIQUE,
    thread_id TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    status    TEXT    NOT NULL CHECK (status IN ('running', 'waiting', 'done')),
    body      TEXT    NOT NULL
) STRICT;
CREATE INDEX run_of_thread ON run (thread_id);
CREATE INDEX run_unfinished ON run (n) WHERE status <> 'done';

CREATE TABLE suspension (
    n           INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    thread_id   TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    run_id      TEXT    NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    call_id     TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('open', 'decided', 'applied', 'superseded', 'expired')),
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    ticket      TEXT    NOT NULL,
    decision_id TEXT,
    decision    TEXT,
    decided_by  TEXT,
    CHECK (status NOT IN ('decided', 'applied') OR decision IS NOT NULL)
) STRICT;
CREATE INDEX suspension_of_thread ON suspension (thread_id, status);
CREATE INDEX suspension_of_run ON suspension (run_id);
CREATE INDEX suspension_open ON suspension (status, expires_at);

-- Written before a tool starts; `outcome` after it ended.
CREATE TABLE intent (
    n         INTEGER PRIMARY KEY,
    run_id    TEXT    NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    call_id   TEXT    NOT NULL,
    attempt   INTEGER NOT NULL,
    thread_id TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    body      TEXT    NOT NULL,
    kind      TEXT    CHECK (kind IN ('returned', 'unknown', 'cancelled')),
    outcome   TEXT,
    UNIQUE (run_id, call_id, attempt),
    CHECK ((kind IS NULL) = (outcome IS NULL))
) STRICT;
CREATE INDEX intent_of_thread ON intent (thread_id);
CREATE INDEX intent_open ON intent (run_id) WHERE outcome IS NULL;

-- What a tool printed while it ran: the first bytes and the last ones.
CREATE TABLE output (
    intent INTEGER NOT NULL REFERENCES intent (n) ON DELETE CASCADE,
    part   INTEGER NOT NULL,
    text   TEXT    NOT NULL,
    PRIMARY KEY (intent, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE output_size (
    intent  INTEGER NOT NULL PRIMARY KEY REFERENCES intent (n) ON DELETE CASCADE,
    head    INTEGER NOT NULL, -- bytes kept of the beginning
    tail    INTEGER NOT NULL, -- bytes kept of the end
    dropped INTEGER NOT NULL, -- bytes between them that are gone
    parts   INTEGER NOT NULL, -- the number of the next part
    cut     INTEGER NOT NULL  -- the number of the first part of the tail
) STRICT;

-- Named `grant_row` because GRANT is a word of SQL.
CREATE TABLE grant_row (
    n          INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    expires_at INTEGER,
    revoked_at INTEGER,
    over       INTEGER NOT NULL DEFAULT 0, -- seen as expired once: a clock that goes back revives nothing
    body       TEXT    NOT NULL
) STRICT;

CREATE TABLE prompt (
    n    INTEGER PRIMARY KEY,
    cwd  BLOB NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (cwd, text)
) STRICT;
