-- What a look for work and a list of questions read.

-- Whether a job's run waits for an answer: such a job is not in the order of the queue until a transaction decides or
-- closes a question of its run.
ALTER TABLE mailbox ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;
UPDATE mailbox SET waits = 1 WHERE status = 'queued' AND run_id IS NOT NULL
    AND EXISTS (SELECT 1 FROM run r WHERE r.id = mailbox.run_id AND r.status = 'waiting')
    AND NOT EXISTS (SELECT 1 FROM suspension s WHERE s.run_id = mailbox.run_id AND s.status = 'decided')
    AND (EXISTS (SELECT 1 FROM suspension s WHERE s.run_id = mailbox.run_id AND s.status = 'open')
         OR NOT EXISTS (SELECT 1 FROM suspension s WHERE s.run_id = mailbox.run_id AND s.status = 'expired'));
DROP INDEX mailbox_order;
CREATE INDEX mailbox_order ON mailbox (priority, available_at, created_at, n) WHERE status = 'queued' AND waits = 0;

-- What lists show of a pending question, without its ticket; and the parent of a run, without its document.
DROP INDEX suspension_waiting;
CREATE INDEX suspension_waiting ON suspension
    (n, id, thread_id, run_id, call_id, action, tool, summary, why, risk, created_at, expires_at) WHERE status = 'open';
CREATE INDEX run_of_parent ON run (id, parent_run_id) WHERE parent_run_id IS NOT NULL;
