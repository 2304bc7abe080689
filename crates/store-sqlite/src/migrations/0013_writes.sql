-- What a turn writes.

-- Whether messages of a thread are not in the search yet: set once and cleared by the search, so that appending a message
-- does not write an index that depends on its number.
ALTER TABLE thread ADD COLUMN unsaid INTEGER NOT NULL DEFAULT 0;
UPDATE thread SET unsaid = 1 WHERE said < messages;
DROP INDEX thread_unsaid;
CREATE INDEX thread_unsaid ON thread (n) WHERE unsaid = 1;

-- The executions of a run are found by `UNIQUE (run_id, call_id, attempt)`. The audit and the counts are read as a whole, or
-- from a moment on: an index was written with each row, and seldom used.
DROP INDEX intent_open;
DROP INDEX audit_of_thread;
DROP INDEX audit_of_call;
DROP INDEX tally_at;

-- Without a second tree.
CREATE TABLE snapshot_of_step (
    thread_id  TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL, -- messages of the thread when it was taken
    run_id     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    PRIMARY KEY (thread_id, seq) -- the first one before a step counts
) STRICT, WITHOUT ROWID;
INSERT INTO snapshot_of_step SELECT thread_id, seq, run_id, created_at, body FROM snapshot;
DROP TABLE snapshot;
ALTER TABLE snapshot_of_step RENAME TO snapshot;
