//! The URLs where other agents want to be notified about a task.

use rusqlite::Row;

use super::rows::{all, int, text};
use super::{PushTarget, PushTargetsOf, Store, StoreError};
use aye_core::contract::ids::RunId;

/// Selects the URLs that have not been notified of the end of their run; the key is that of [`push_key`](super::push_key).
macro_rules! waiting {
    () => {
        "NOT EXISTS (SELECT 1 FROM delivery WHERE key = 'push ' || run_id || ' ' || push_target.id || ' done')"
    };
}

impl Store {
    /// Stores a URL, replacing one with the same id. Returns `false` if the conversation does not exist.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_push_target(&self, target: PushTarget, now_ms: u64) -> Result<bool, StoreError> {
        self.write(move |tx| {
            let sql = "INSERT INTO push_target (run_id, id, thread_id, config, created_at) \
                       SELECT ?1, ?2, id, ?4, ?5 FROM thread WHERE id = ?3 \
                       ON CONFLICT (run_id, id) DO UPDATE SET config = excluded.config";
            let PushTarget { run_id, id, thread_id, config } = target;
            let values = (run_id.as_str(), id, thread_id.as_str(), config, int(now_ms));
            Ok(tx.prepare_cached(sql)?.execute(values)? == 1)
        })
        .await
    }

    /// Addresses, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn push_targets(&self, of: PushTargetsOf) -> Result<Vec<PushTarget>, StoreError> {
        self.read(move |conn| {
            let (which, value) = match &of {
                PushTargetsOf::Run(run) => ("run_id = ?1", run.as_str()),
                PushTargetsOf::Waiting(thread) => {
                    (concat!("thread_id = ?1 AND ", waiting!()), thread.as_str())
                }
                PushTargetsOf::AllWaiting => (concat!("?1 = '' AND ", waiting!()), ""),
            };
            let sql = format!(
                "SELECT run_id, id, thread_id, config FROM push_target WHERE {which} ORDER BY created_at, id"
            );
            all(conn, &sql, (value,), |row| Ok(row_of(row)?))
        })
        .await
    }

    /// Deletes a URL. Returns `false` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete_push_target(&self, run: &RunId, id: String) -> Result<bool, StoreError> {
        let run = run.clone();
        self.write(move |tx| {
            let sql = "DELETE FROM push_target WHERE run_id = ?1 AND id = ?2";
            Ok(tx.prepare_cached(sql)?.execute((run.as_str(), id))? == 1)
        })
        .await
    }
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<PushTarget> {
    Ok(PushTarget {
        run_id: text(row, 0)?.into(),
        id: text(row, 1)?,
        thread_id: text(row, 2)?.into(),
        config: text(row, 3)?,
    })
}
