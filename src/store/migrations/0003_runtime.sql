-- What agents remember, hand over and put off. Not released yet: each part below stands by itself.


-- == profile: values that agents keep beyond a thread


-- == mailbox: jobs that wait for a worker


-- == children: runs that serve another run's call


-- == context: summaries that stand for older messages
-- The messages stay. A summary stands for all of them up to `upto_seq`, so the one that reaches farthest counts.

CREATE TABLE summary (
    n         INTEGER PRIMARY KEY,
    thread_id TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    upto_seq  INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    UNIQUE (thread_id, upto_seq)
) STRICT;


-- == servers: what is known of tool servers


-- == statistics: what the table of numbers needs beside runs and the audit
