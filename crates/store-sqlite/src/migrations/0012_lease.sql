-- When a lease was taken or renewed last, in Unix milliseconds, and how long it lasts from then: its end for a process
-- whose clock is not its owner's, on another machine or after a restart.
ALTER TABLE lease ADD COLUMN renewed_at INTEGER;
ALTER TABLE lease ADD COLUMN length INTEGER;
