-- What agents remember, hand over and put off. Not released yet: each part below stands by itself.


-- == profile: values that agents keep beyond a thread


-- == mailbox: jobs that wait for a worker


-- == children: runs that serve another run's call
CREATE TABLE child (
    n             INTEGER PRIMARY KEY,
    thread_id     TEXT    NOT NULL UNIQUE REFERENCES thread (id) ON DELETE CASCADE,
    parent_thread TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    root_thread   TEXT    NOT NULL,
    parent_run    TEXT    NOT NULL,
    parent_call   TEXT    NOT NULL,
    agent         TEXT    NOT NULL,
    depth         INTEGER NOT NULL,
    background    INTEGER NOT NULL, -- its call does not wait for it
    stop          INTEGER NOT NULL DEFAULT 0, -- somebody wants it to end
    told          INTEGER NOT NULL, -- the end of one in the background was put to the parent
    created_at    INTEGER NOT NULL,
    prompt        TEXT    NOT NULL,
    model         TEXT, -- its parent's, for an agent that names none
    UNIQUE (parent_run, parent_call)
) STRICT;
CREATE INDEX child_of_parent ON child (parent_thread, n);
CREATE INDEX child_of_root ON child (root_thread, n);


-- == context: summaries that stand for older messages


-- == servers: what is known of tool servers


-- == statistics: what the table of numbers needs beside runs and the audit
