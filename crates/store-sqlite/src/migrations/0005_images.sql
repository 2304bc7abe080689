-- Pictures: the bytes once, by their SHA-256 in hex; messages name them. A picture of no thread is one that was attached to a
-- text which is not sent yet, or never was: it goes after a while.
CREATE TABLE image (
    n          INTEGER PRIMARY KEY,
    hash       TEXT    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    data       BLOB    NOT NULL
) STRICT;

CREATE TABLE image_of (
    thread_id TEXT NOT NULL REFERENCES thread (id) ON DELETE CASCADE,
    hash      TEXT NOT NULL,
    PRIMARY KEY (thread_id, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX image_of_hash ON image_of (hash);
