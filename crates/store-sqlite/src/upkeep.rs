//! Maintenance: backups, permanent deletion, pruning, shrinking.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, Transaction};

use super::rows::{body, int, text, uint};
use super::{
    PrunePlace, Pruned, SqlFailure, Store, StoreError, audit, children, images, leases, log_mark, search,
    transact,
};
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::clock::Clock;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::message::Message;
use aye_core::contract::presence::Liveness;
use aye_core::contract::record::Owner;
use aye_core::contract::suspension::Actor;

/// Threads that are pruned in one transaction, so that others get their turn.
const BATCH: i64 = 50;
/// A store that cannot shrink in place yet is rebuilt once when it is not larger; a larger one when it is pruned.
const SMALL: i64 = 256 << 20;

/// A connection that overwrites what it deletes, until it is dropped.
struct Overwriting<'a>(&'a mut Connection);

impl<'a> Overwriting<'a> {
    fn new(conn: &'a mut Connection) -> Result<Self, SqlFailure> {
        let this = Self(conn);
        this.0.query_row("PRAGMA secure_delete = ON", (), |_| Ok(()))?;
        Ok(this)
    }
}

impl Drop for Overwriting<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.query_row("PRAGMA secure_delete = FAST", (), |_| Ok(())) {
            tracing::warn!(%error, "the store still overwrites all deleted data");
        }
    }
}

impl Store {
    /// Deletes a thread with its children and everything that belongs to them, except for the audit. Its
    /// messages are overwritten in the file. Returns `false` if the thread does not exist.
    ///
    /// The thread may be owned by `me`; `alive` returns whether another owner is still alive. The audit names
    /// the actor.
    ///
    /// # Errors
    /// [`StoreError::Owned`] while another live process drives it.
    pub async fn delete_thread(
        &self,
        id: &ThreadId,
        me: &Owner,
        alive: impl Fn(&Owner) -> Liveness + Send + 'static,
        (actor, now_ms): (Actor, u64),
    ) -> Result<bool, StoreError> {
        let (id, me) = (id.clone(), me.clone());
        let users = Users { me, alive, clock: self.clock() };
        self.overwrite(move |tx| Ok(!delete(tx, &[id], &users, &actor, now_ms)?.is_empty())).await
    }

    /// Writes like [`Store::write`], and overwrites in the file what the work deletes.
    async fn overwrite<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, SqlFailure> + Send + 'static,
    {
        let checked = self.checked();
        self.call(move |conn| {
            checked()?;
            transact(&mut *Overwriting::new(conn)?.0, "", "", work)
        })
        .await
    }

    /// Deletes some of the threads that were changed before a time, oldest first, as [`Store::delete_thread`] does. Those
    /// that are pinned stay, and those in which something waits, is queued or runs, also in a child below them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn prune(
        &self,
        before: Option<u64>,
        from: PrunePlace,
        me: &Owner,
        alive: impl Fn(&Owner) -> Liveness + Send + 'static,
        (actor, now_ms): (Actor, u64),
    ) -> Result<Pruned, StoreError> {
        let users = Users { me: me.clone(), alive, clock: self.clock() };
        let before = before.map_or(i64::MAX, int);
        self.overwrite(move |tx| {
            let (found, next) = prunable(tx, before, from)?;
            let mut free = Vec::new();
            for id in found {
                if users.user_of(tx, &id)?.is_none() {
                    free.push(id);
                }
            }
            let threads = delete(tx, &free, &users, &actor, now_ms)?;
            Ok(Pruned { threads, next })
        })
        .await
    }

    /// Bytes of the file that hold something.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn used_bytes(&self) -> Result<u64, StoreError> {
        self.read(|conn| {
            let pragma = super::open::pragma;
            let pages = pragma(conn, "page_count")? - pragma(conn, "freelist_count")?;
            Ok(u64::try_from(pages * pragma(conn, "page_size")?).unwrap_or(0))
        })
        .await
    }

    /// Returns the space of deleted data to the file system, and removes that data from the write-ahead log.
    /// An older store that cannot shrink in place is rebuilt once: a large one only `with_rebuild`. Returns
    /// `false` if the log is in use by another process, and still contains the deleted data until that
    /// process ends.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn shrink(&self, with_rebuild: bool) -> Result<bool, StoreError> {
        let checked = self.checked();
        self.call(move |conn| {
            checked()?;
            let pragma = super::open::pragma;
            if pragma(conn, "auto_vacuum")? == 2 {
                let mut statement = conn.prepare("PRAGMA incremental_vacuum")?;
                let mut rows = statement.query(())?;
                while rows.next()?.is_some() {}
            } else if with_rebuild || pragma(conn, "page_count")? * pragma(conn, "page_size")? <= SMALL {
                // Not in memory: it is as large as the store.
                conn.execute_batch(
                    "PRAGMA temp_store = FILE; PRAGMA auto_vacuum = INCREMENTAL; VACUUM; PRAGMA temp_store = MEMORY;",
                )?;
            }
            // The log is empty after this, and the next process that leaves one marks it again.
            if let Some(path) = conn.path() {
                log_mark::lift(Path::new(path));
            }
            let busy: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0))?;
            Ok(busy == 0)
        })
        .await
    }

    /// Writes the store as it is at this moment to a new file, also while others write to it.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the file exists; [`StoreError`] when it cannot be written.
    pub async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let to = to.to_owned();
        self.call(move |conn| {
            let exists = || SqlFailure(StoreError::Exists { what: to.display().to_string() });
            if to.symlink_metadata().is_ok() {
                return Err(exists());
            }
            let io = |error: std::io::Error| {
                SqlFailure(StoreError::Backup { path: to.clone(), why: error.to_string() })
            };
            let folder =
                to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // SQLite follows no links, and this folder may be one.
            let folder = folder.canonicalize().map_err(io)?;
            let made = tempfile::Builder::new().prefix(".aye-backup-").tempfile_in(&folder).map_err(io)?;
            let Some(path) = made.path().to_str() else {
                return Err(io(std::io::Error::other("the name of its folder is not UTF-8")));
            };
            conn.execute("VACUUM INTO ?1", (path,))?;
            made.as_file().sync_all().map_err(io)?;
            match made.into_temp_path().persist_noclobber(&to) {
                Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(exists()),
                Err(error) => Err(io(error.error)),
                Ok(()) => {
                    std::fs::File::open(&folder).and_then(|folder| folder.sync_all()).map_err(io)?;
                    Ok(())
                }
            }
        })
        .await
    }
}

/// Threads at the top that may be pruned.
const PRUNABLE: &str = "SELECT t.id, t.updated_at, t.n FROM thread t \
     WHERE t.updated_at < ?1 AND (t.updated_at, t.n) > (?2, ?3) AND t.pinned_at IS NULL \
     AND NOT EXISTS (SELECT 1 FROM child c WHERE c.thread_id = t.id) \
     AND NOT EXISTS (SELECT 1 FROM run r WHERE r.thread_id = t.id AND r.status <> 'done') \
     AND NOT EXISTS (SELECT 1 FROM child c JOIN run r ON r.thread_id = c.thread_id \
          WHERE c.root_thread = t.id AND r.status <> 'done') \
     AND NOT EXISTS (SELECT 1 FROM suspension s WHERE s.thread_id = t.id AND s.status IN ('open', 'decided')) \
     AND NOT EXISTS (SELECT 1 FROM child c CROSS JOIN suspension s ON s.thread_id = c.thread_id \
          WHERE c.root_thread = t.id AND s.status IN ('open', 'decided')) \
     AND NOT EXISTS (SELECT 1 FROM mailbox m WHERE m.mailbox_id = t.id AND m.status IN ('queued', 'claimed')) \
     AND NOT EXISTS (SELECT 1 FROM child c JOIN mailbox m ON m.mailbox_id = c.thread_id \
          WHERE c.root_thread = t.id AND m.status IN ('queued', 'claimed')) \
     ORDER BY t.updated_at, t.n LIMIT ?4";

fn prunable(
    tx: &Connection,
    before: i64,
    from: PrunePlace,
) -> Result<(Vec<ThreadId>, Option<PrunePlace>), SqlFailure> {
    let mut statement = tx.prepare_cached(PRUNABLE)?;
    let mut rows = statement.query((before, from.updated_at, from.n, BATCH))?;
    let (mut found, mut next) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        found.push(ThreadId::from(text(row, 0)?));
        next = Some(PrunePlace { updated_at: row.get(1)?, n: row.get(2)? });
    }
    Ok((found, next))
}

/// Finds the process that uses a thread.
struct Users<F> {
    me: Owner,
    alive: F,
    clock: Arc<dyn Clock>,
}

impl<F: Fn(&Owner) -> Liveness> Users<F> {
    /// The process that has the lease of a thread and may still use the thread.
    fn user_of(&self, conn: &Connection, thread: &ThreadId) -> Result<Option<Owner>, SqlFailure> {
        let lease = leases::lease_of(conn, &*self.clock, thread)?;
        Ok(lease.filter(|lease| lease.is_in_use((self.alive)(&lease.owner))).map(|lease| lease.owner))
    }
}

/// Deletes threads with all below them. Gives those that were there.
fn delete(
    tx: &Transaction<'_>,
    ids: &[ThreadId],
    users: &Users<impl Fn(&Owner) -> Liveness>,
    actor: &Actor,
    now_ms: u64,
) -> Result<Vec<ThreadId>, SqlFailure> {
    let mut all = Vec::new();
    for id in ids {
        if let Some(owner) = users.user_of(tx, id)?.filter(|owner| owner.token != users.me.token) {
            return Err(StoreError::Owned { thread: id.clone(), owner: Box::new(owner) }.into());
        }
        all.extend(children::below(tx, id, false)?);
        all.push(id.clone());
    }
    search::forget(tx, &all)?;
    let mut gone = Vec::new();
    for id in &all {
        let count = |table: &str| -> rusqlite::Result<u64> {
            tx.prepare_cached(&format!("SELECT count(*) FROM {table} WHERE thread_id = ?1"))?
                .query_row((id.as_str(),), |row| Ok(uint(row.get(0)?)))
        };
        let (questions, executions) = (count("suspension")?, count("intent")?);
        forget_prompts(tx, id)?;
        images::forget(tx, id)?;
        let is_gone = tx.prepare_cached("DELETE FROM thread WHERE id = ?1")?.execute((id.as_str(),))? > 0;
        if is_gone && ids.contains(id) {
            audit::append_entry(tx, &AuditEntry::deleted(now_ms, id, questions, executions, actor))?;
            gone.push(id.clone());
        }
    }
    Ok(gone)
}

/// Removes the messages typed into a thread from the prompt history.
fn forget_prompts(tx: &Connection, thread: &ThreadId) -> Result<(), SqlFailure> {
    let mut counted = tx.prepare_cached(
        "SELECT body FROM message WHERE thread_id = ?1 AND iif(json_valid(body), body ->> '$.role', '') = 'user'",
    )?;
    let mut forget = tx.prepare_cached(
        "DELETE FROM prompt WHERE cwd = (SELECT cwd FROM thread WHERE id = ?1) AND text IN (?2, ?3)",
    )?;
    let mut rows = counted.query((thread.as_str(),))?;
    while let Some(row) = rows.next()? {
        if let Ok(message) = serde_json::from_slice::<Message>(body(row, 0)?) {
            forget.execute((thread.as_str(), message.text(), message.written()))?;
        }
    }
    Ok(())
}
