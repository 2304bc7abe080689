//! A store of Rust collections that is lost when the program ends: the default for a runtime without a store,
//! and the shortest example of what a store must do.
//!
//! A transaction changes a copy of the rows, which shares the unchanged ones, and replaces the rows with the
//! copy at the end. A rejected transaction therefore leaves no trace. There is no disk to wait for: an
//! acknowledged write is as durable as the process.

mod artifacts;
mod audit;
mod children;
mod commands;
mod decisions;
mod journal;
mod mailbox;
mod parts;
mod profile;
mod queue;
mod rows;
mod threads;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::broadcast;

use aye_core::contract::clock::{Clock, SystemClock};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::presence::LocalPresence;
use aye_core::contract::profile::ProfileStore;
use aye_core::contract::record::{Checkpoint, ExecutionStart, Owner};
use aye_core::contract::storage::{
    ChangeFeed, ChangeKind, MailboxStore, StoreChange, StoreError, ThreadRunStore,
};
use aye_core::contract::suspension::Actor;

pub use mailbox::InMemoryMailboxStore;
use rows::Rows;

/// The number of changes that a feed may lag before it has to check everything.
const BEHIND: usize = 256;

/// Threads and runs that are gone with the program. Clones are one handle.
#[derive(Clone, Debug)]
pub struct InMemoryStore {
    shared: Arc<Shared>,
    /// A feed does not report what its own handle commits.
    handle: u64,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Shared {
    /// `None`: closed.
    rows: Mutex<Option<Rows>>,
    handles: AtomicU64,
    changes: broadcast::Sender<(u64, StoreChange)>,
    presence: LocalPresence,
}

impl Default for InMemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemoryStore {
    pub fn new() -> Self {
        let rows = Mutex::new(Some(Rows::default()));
        let changes = broadcast::Sender::new(BEHIND);
        Self {
            shared: Arc::new(Shared {
                rows,
                handles: AtomicU64::new(1),
                changes,
                presence: LocalPresence::default(),
            }),
            handle: 0,
            clock: Arc::new(SystemClock),
        }
    }

    /// Counts by another clock than the machine's.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Another handle of the same rows, as another process has one of a file: each reports what the other one commits.
    #[must_use]
    pub fn another(&self) -> Self {
        let handle = self.shared.handles.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared), handle, clock: Arc::clone(&self.clock) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Rows>> {
        self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, work: impl FnOnce(&Rows) -> T) -> Result<T, StoreError> {
        self.lock().as_ref().map(work).ok_or(StoreError::Closed)
    }

    /// Writes all of it or nothing.
    fn write<T>(&self, work: impl FnOnce(&mut Rows) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut held = self.lock();
        let rows = held.as_mut().ok_or(StoreError::Closed)?;
        let mut next = rows.clone();
        let value = work(&mut next)?;
        *rows = next;
        Ok(value)
    }

    fn emit(&self, change: StoreChange) {
        // A change without a subscriber is not an error.
        let _ = self.shared.changes.send((self.handle, change));
    }

    fn publish_change(&self, kind: ChangeKind, thread: &ThreadId) {
        self.emit(StoreChange::of(kind, thread));
    }
}

#[async_trait]
impl ThreadRunStore for InMemoryStore {
    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), StoreError> {
        self.write(|rows| rows.checkpoint(&checkpoint))?;
        self.publish_change(ChangeKind::Run, &checkpoint.run.thread_id);
        if checkpoint.releases {
            self.publish_change(ChangeKind::Owner, &checkpoint.run.thread_id);
        }
        Ok(())
    }

    async fn begin(&self, begin: ExecutionStart) -> Result<(), StoreError> {
        self.write(|rows| rows.begin(&begin))?;
        self.publish_change(ChangeKind::Run, &begin.run.thread_id);
        Ok(())
    }

    async fn checkpoint_and_begin(
        &self,
        checkpoint: Checkpoint,
        begin: ExecutionStart,
    ) -> Result<(), StoreError> {
        self.write(|rows| {
            rows.checkpoint(&checkpoint)?;
            rows.begin(&begin)
        })?;
        self.publish_change(ChangeKind::Run, &begin.run.thread_id);
        Ok(())
    }

    async fn delete_thread(
        &self,
        thread: &ThreadId,
        own: &Owner,
        actor: Actor,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let uptime = self.clock.uptime_ms();
        self.write(|rows| rows.delete_thread(thread, own, &self.shared.presence, uptime, (&actor, now_ms)))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn mailboxes(&self) -> Result<Arc<dyn MailboxStore>, StoreError> {
        Ok(Arc::new(InMemoryMailboxStore::of(self.clone())))
    }

    fn profile_store(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn ProfileStore>, StoreError> {
        Ok(Arc::new(profile::Profiles { store: self.clone(), clock }))
    }

    fn watch(&self) -> Result<Box<dyn ChangeFeed>, StoreError> {
        Ok(Box::new(Feed { changes: self.shared.changes.subscribe(), handle: self.handle }))
    }

    fn handle(&self) -> Result<Arc<dyn ThreadRunStore>, StoreError> {
        Ok(Arc::new(self.clone()))
    }

    fn another(&self) -> Result<Arc<dyn ThreadRunStore>, StoreError> {
        Ok(Arc::new(InMemoryStore::another(self)))
    }

    async fn close(&self) {
        *self.lock() = None;
    }
}

struct Feed {
    changes: broadcast::Receiver<(u64, StoreChange)>,
    handle: u64,
}

#[async_trait]
impl ChangeFeed for Feed {
    async fn next(&mut self) -> StoreChange {
        loop {
            match self.changes.recv().await {
                Ok((from, change)) if from != self.handle => return change,
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => return StoreChange::anything(),
                // The last handle is gone: nothing changes any more.
                Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}
