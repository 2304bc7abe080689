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
