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
-- `n` is a job's number; one is never given twice. `body` is what never changes of it.
CREATE TABLE mailbox (
    n             INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id        TEXT    NOT NULL UNIQUE,
    mailbox_id    TEXT    NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    status        TEXT    NOT NULL CHECK
        (status IN ('queued', 'claimed', 'accepted', 'cancelled', 'superseded', 'dead_letter')),
    priority      INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 255),
    available_at  INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    dedupe_key    TEXT,
    attempt_count INTEGER NOT NULL,
    max_attempts  INTEGER NOT NULL,
    last_error    TEXT,
    run_id        TEXT,
    claim_token   TEXT,
    claimed_by    TEXT,
    lease_until   INTEGER,
    body          TEXT    NOT NULL,
    CHECK ((status = 'claimed') = (claim_token IS NOT NULL)),
    CHECK ((claim_token IS NULL) = (lease_until IS NULL))
) STRICT;
-- Held by the database itself: one claimed job a mailbox, one open job for a key.
CREATE UNIQUE INDEX mailbox_claimed ON mailbox (mailbox_id) WHERE status = 'claimed';
CREATE UNIQUE INDEX mailbox_key ON mailbox (mailbox_id, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND status IN ('queued', 'claimed');
CREATE INDEX mailbox_queue ON mailbox (mailbox_id, priority, available_at, created_at, n) WHERE status = 'queued';
CREATE INDEX mailbox_order ON mailbox (priority, available_at, created_at, n) WHERE status = 'queued';
CREATE INDEX mailbox_time ON mailbox (available_at) WHERE status = 'queued';
CREATE INDEX mailbox_lease ON mailbox (lease_until) WHERE status = 'claimed';
CREATE INDEX mailbox_over ON mailbox (updated_at)
    WHERE status IN ('accepted', 'cancelled', 'superseded', 'dead_letter');
CREATE INDEX mailbox_run ON mailbox (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX mailbox_of_thread ON mailbox (mailbox_id);

-- The generation of each mailbox that was ever interrupted.
CREATE TABLE mailbox_generation (
    mailbox_id TEXT    NOT NULL PRIMARY KEY REFERENCES thread (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What was queued before the mailbox was.
INSERT INTO mailbox (n, job_id, mailbox_id, status, priority, available_at, created_at, updated_at, generation,
                     attempt_count, max_attempts, body)
SELECT n, lower(hex(randomblob(16))), thread_id, 'queued', 128, created_at, created_at, created_at, 0, 0, 5,
       '{"agent_id":"","messages":' || body || ',"origin":"user"}'
FROM queued;
DROP TABLE queued;


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

-- A row for each answer of a model, each execution of a tool and each answer of a person. It outlives its thread.
CREATE TABLE tally (
    n           INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    failed      INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cached      INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX tally_at ON tally (at);

-- What was done before the table was, as far as its rows can be read.
INSERT INTO tally (at, kind, name, failed, input, output, cached, duration_ms)
SELECT created_at, 'inference', substr(m ->> 'model', 1, 200), 0,
       coalesce(min(max(CAST(m ->> '$.usage.prompt_tokens' AS INTEGER), 0), 2147483647), 0),
       coalesce(min(max(CAST(m ->> '$.usage.completion_tokens' AS INTEGER), 0), 2147483647), 0),
       coalesce(min(max(CAST(m ->> '$.usage.cache_read_tokens' AS INTEGER), 0), 2147483647), 0),
       coalesce(min(max(CAST(m ->> 'duration_ms' AS INTEGER), 0), 2147483647), 0)
FROM (SELECT created_at, iif(json_valid(body), body -> '$.metadata', NULL) AS m FROM message)
WHERE m ->> 'model' IS NOT NULL;

INSERT INTO tally (at, kind, name, failed, input, output, cached, duration_ms)
SELECT CAST(o ->> 'ended_at' AS INTEGER), 'call', substr(i ->> 'tool', 1, 200),
       coalesce(o ->> 'outcome', '') = 'failed' OR kind = 'unknown', 0, 0, 0,
       min(max(CAST(o ->> 'ended_at' AS INTEGER) - CAST(i ->> 'started_at' AS INTEGER), 0), 2147483647)
FROM (SELECT kind, iif(json_valid(body), body, NULL) AS i, iif(json_valid(outcome), outcome, NULL) AS o FROM intent)
WHERE CAST(o ->> 'ended_at' AS INTEGER) BETWEEN 1 AND 9000000000000000
  AND CAST(i ->> 'started_at' AS INTEGER) BETWEEN 1 AND 9000000000000000 AND i ->> 'tool' IS NOT NULL
  AND coalesce(o ->> 'outcome', '') <> 'suspended';

INSERT INTO tally (at, kind, name, failed, input, output, cached, duration_ms)
SELECT at, 'wait', substr(tool, 1, 200), 0, 0, 0, 0, min(max(delay, 0), 2147483647)
FROM (SELECT a.at, CAST(iif(json_valid(a.body), a.body ->> 'delay_ms', NULL) AS INTEGER) AS delay,
             iif(json_valid(s.ticket), s.ticket ->> '$.pending.name', NULL) AS tool
      FROM audit AS a
      JOIN suspension AS s ON s.id = iif(json_valid(a.body), a.body ->> 'suspension', NULL)
      WHERE a.kind = 'decided')
WHERE tool IS NOT NULL AND delay IS NOT NULL;
