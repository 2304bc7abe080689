-- Lists of threads: one order for the list, one for a folder. Neither is sorted when it is read.
CREATE INDEX thread_order ON thread ((pinned_at IS NULL), updated_at DESC, n DESC);
CREATE INDEX thread_of_folder ON thread (cwd, updated_at);

-- The search: the text of users and models in lower case, by three letters. A row's id is its thread's number (`thread.n`)
-- times 2^32 plus the message's place. It holds no text and no positions: a match is checked against its message.
-- What is deleted from it leaves nothing behind.
CREATE VIRTUAL TABLE said USING fts5 (
    text, content = '', columnsize = 0, detail = none, tokenize = 'trigram case_sensitive 1'
);
INSERT INTO said (said, rank) VALUES ('secure-delete', 1);

-- How many messages of a thread are in the search. A search adds what is missing first.
ALTER TABLE thread ADD COLUMN said INTEGER NOT NULL DEFAULT 0;
CREATE INDEX thread_unsaid ON thread (n) WHERE said < messages;

-- The first commit of a folder's repository, and where in it the folder is: a project that was moved is known by them.
CREATE TABLE folder (
    cwd          BLOB NOT NULL PRIMARY KEY,
    first_commit TEXT NOT NULL,
    below        BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX folder_of_commit ON folder (first_commit);
