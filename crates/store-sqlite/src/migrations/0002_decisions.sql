-- What lists show of a question, so that ten thousand of them are read without their tickets. Null in rows that an
-- older version wrote: those are read from the ticket.
ALTER TABLE suspension ADD COLUMN action  TEXT;
ALTER TABLE suspension ADD COLUMN tool    TEXT;
ALTER TABLE suspension ADD COLUMN summary TEXT;
ALTER TABLE suspension ADD COLUMN why     TEXT;
ALTER TABLE suspension ADD COLUMN risk    TEXT;
CREATE INDEX suspension_waiting ON suspension (n) WHERE status = 'open';

-- The run a child serves, for lists over runs.
ALTER TABLE run ADD COLUMN parent_run_id TEXT;

ALTER TABLE grant_row ADD COLUMN max_uses INTEGER;
ALTER TABLE grant_row ADD COLUMN uses     INTEGER NOT NULL DEFAULT 0;

-- Until when the owner may write, in milliseconds of its boot's monotonic clock; null is as long as its process lives.
ALTER TABLE lease ADD COLUMN until INTEGER;

-- Messages that were said while their thread was busy or waiting.
CREATE TABLE queued (
    n          INTEGER PRIMARY KEY AUTOINCREMENT, -- a number is never given twice
    thread_id  TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    body       TEXT    NOT NULL
) STRICT;
CREATE INDEX queued_of_thread ON queued (thread_id, n);

-- Append-only and chained: each row's hash covers the hash of the row before. It has no foreign keys, so that it
-- outlives what it tells about.
CREATE TABLE audit (
    n         INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    thread_id TEXT,
    run_id    TEXT,
    call_id   TEXT,
    body      TEXT    NOT NULL,
    hash      TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_of_thread ON audit (thread_id, n);
CREATE INDEX audit_of_call ON audit (run_id, call_id, n);

-- The last row there should be: a missing end is seen too.
CREATE TABLE audit_head (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    n    INTEGER NOT NULL,
    hash TEXT    NOT NULL
) STRICT;

-- Lists of rules that calls were held against, by the SHA-256 of their text.
CREATE TABLE audit_rules (
    hash TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The last rows that were there before the audit was: nothing in it tells how they came to be.
CREATE TABLE audit_start (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    suspension INTEGER NOT NULL,
    intent     INTEGER NOT NULL,
    grant_row  INTEGER NOT NULL
) STRICT;
INSERT INTO audit_start (one, suspension, intent, grant_row)
SELECT 1, (SELECT coalesce(max(n), 0) FROM suspension), (SELECT coalesce(max(n), 0) FROM intent),
       (SELECT coalesce(max(n), 0) FROM grant_row);
