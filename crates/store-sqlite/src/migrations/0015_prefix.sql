-- The start of a conversation's requests.

-- System text, tools, and where older messages are cut: frozen with the first request and at each compaction. The newest row
-- counts; the others are for copies of a thread's beginning.
CREATE TABLE prefix (
    thread_id TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    seq       INTEGER NOT NULL, -- messages of the thread when it was frozen
    body      TEXT    NOT NULL,
    PRIMARY KEY (thread_id, seq)
) STRICT;
