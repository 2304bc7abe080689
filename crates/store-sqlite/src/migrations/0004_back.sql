-- Going back. A snapshot is the files of a folder before a step; the files themselves are in another database.
CREATE TABLE snapshot (
    n          INTEGER PRIMARY KEY,
    thread_id  TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL, -- messages of the thread when it was taken
    run_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    UNIQUE (thread_id, seq) -- the first one before a step counts
) STRICT;

-- What it takes to take a going back back.
CREATE TABLE went_back (
    n          INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id  TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    body       TEXT    NOT NULL
) STRICT;
CREATE INDEX went_back_of_thread ON went_back (thread_id, n);

-- The thread-scoped state as it was when its thread had so many messages, for copies of a thread's beginning.
CREATE TABLE thread_state_at (
    thread_id TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    seq       INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    PRIMARY KEY (thread_id, seq)
) STRICT, WITHOUT ROWID;

-- What lists show of a thread beside its title. `named_by` is who wrote the title: null is its first line, `model`, or
-- `person`, whose title nobody changes. `fork` is a ForkRecord. `left_for` is the copy that a thread was left for.
ALTER TABLE thread ADD COLUMN named_by TEXT;
ALTER TABLE thread ADD COLUMN pinned_at INTEGER;
ALTER TABLE thread ADD COLUMN branch TEXT;
ALTER TABLE thread ADD COLUMN fork TEXT;
ALTER TABLE thread ADD COLUMN left_for TEXT;
