-- Where other agents want to be told what becomes of a task: the address and its secrets, as they gave them.
CREATE TABLE push_target (
    run_id     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    thread_id  TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    config     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, id)
) STRICT;
CREATE INDEX push_target_of_thread ON push_target (thread_id);
