-- What has to be known of a whole thread, so that its messages need not be read again: an Outline, of as many messages as it
-- says. Null or behind in threads that were written otherwise; it is caught up with when they are gone on with.
ALTER TABLE thread ADD COLUMN outline TEXT;
-- The tokens of its first runs, and the number of the last one of them.
ALTER TABLE thread ADD COLUMN usage TEXT;

-- The ids of the calls of a thread: one that is there already is never given to another call.
CREATE TABLE called (
    thread_id TEXT NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    call_id   TEXT NOT NULL,
    PRIMARY KEY (thread_id, call_id)
) STRICT, WITHOUT ROWID;
