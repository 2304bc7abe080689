-- Agents and models that were defined over the server's API: a row for each version, because a run finishes on the
-- revision that it started with. A version without a value deletes the entry.
CREATE TABLE config_entry (
    revision  INTEGER PRIMARY KEY AUTOINCREMENT, -- of all namespaces together; no number comes twice
    namespace TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    value     TEXT,
    at        INTEGER NOT NULL
) STRICT;
CREATE INDEX config_entry_of_id ON config_entry (namespace, id, revision);
