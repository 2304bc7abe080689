//! Commits without fsync.
//!
//! Such a row survives this process at once, and a power cut from the next durable commit on: the log is written in
//! order, so any later durable commit includes it. It is for data that a power cut makes meaningless (the owner of a
//! thread) or that was not acknowledged yet (a thread before its first message).

use rusqlite::Connection;

use super::SqlFailure;

/// A connection whose commits do not wait for the disk, until it is dropped.
pub(super) struct Relaxed<'a>(&'a mut Connection);

impl<'a> Relaxed<'a> {
    pub(super) fn new(conn: &'a mut Connection) -> Result<Self, SqlFailure> {
        let relaxed = Self(conn);
        relaxed.0.execute_batch("PRAGMA synchronous = NORMAL")?;
        Ok(relaxed)
    }
}

impl std::ops::Deref for Relaxed<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl std::ops::DerefMut for Relaxed<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.0
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.execute_batch("PRAGMA synchronous = FULL") {
            tracing::error!("writes no longer wait for the disk: {error}");
        }
    }
}
