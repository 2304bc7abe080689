-- What agents remember, hand over and put off. Not released yet: each part below stands by itself.


-- == profile: values that agents keep beyond a thread

CREATE TABLE profile (
    n          INTEGER PRIMARY KEY AUTOINCREMENT, -- the version: each write is a new row, and no number comes twice
    namespace  TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    UNIQUE (namespace, key)
) STRICT;


-- == mailbox: jobs that wait for a worker


-- == children: runs that serve another run's call


-- == context: summaries that stand for older messages


-- == servers: what is known of tool servers


-- == statistics: what the table of numbers needs beside runs and the audit
