-- Commands in the background of a thread. What they print is kept beside the intent of the call that started them.
CREATE TABLE command (
    n          INTEGER PRIMARY KEY AUTOINCREMENT, -- a task's number is never given twice
    thread_id  TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    intent     INTEGER NOT NULL UNIQUE REFERENCES intent (n) ON DELETE CASCADE,
    agent      TEXT    NOT NULL,
    line       TEXT    NOT NULL,
    owner      TEXT    NOT NULL, -- the process that watches it
    started_at INTEGER NOT NULL,
    seen       INTEGER NOT NULL DEFAULT 0, -- bytes of output that the model looked at
    stop       INTEGER NOT NULL DEFAULT 0, -- somebody wants it to end
    told       INTEGER NOT NULL DEFAULT 0, -- its end is known to the thread
    ended_at   INTEGER,
    outcome    TEXT,
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT;
CREATE INDEX command_of_thread ON command (thread_id, n);
CREATE INDEX command_untold ON command (thread_id) WHERE told = 0;
