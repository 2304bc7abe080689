//! The interface that a store implements, the rows that it takes and returns besides those of
//! [`record`](super::record), and its errors.
//!
//! A [`ThreadRunStore`] is everything that a runtime needs from a database, and the only name of the database
//! that the runtime knows. The promises about crashes rely on three properties of every store: a method is
//! one transaction; an acknowledged write is durable, unless the method's documentation says otherwise; a
//! write with a [`Fence`](super::record::Fence) that is not the current one fails. The crate
//! `aye-store-suite` checks these properties for any store.

mod artifacts;
mod change;
mod children;
mod commands;
mod decisions;
pub(super) mod encode;
pub(super) mod error;
mod mailbox;
mod query;
mod runs;
mod threads;

use std::sync::Arc;

use async_trait::async_trait;

use super::clock::Clock;
use super::ids::ThreadId;
use super::profile::ProfileStore;
use super::record::{Checkpoint, ExecutionStart, Owner};
use super::suspension::Actor;

pub use artifacts::{ArtifactStore, MAX_ARTIFACT, artifact_name, check_artifact};
pub use change::{ChangeFeed, ChangeKind, StoreChange};
pub use children::{ChildStore, QueueStore};
pub use commands::CommandStore;
pub use decisions::{AuditStore, DecisionStore, GrantStore};
pub use encode::encode;
pub use error::{AcquireError, StorageError, StoreError, holder};
pub use mailbox::MailboxStore;
pub use query::{AuditFilter, Portion, Slice, SuspensionFilter, ThreadTail};
pub use runs::{LeaseStore, RunStore};
pub use threads::ThreadStore;

/// Threads and runs, and the transactions that change both: the store of a runtime.
#[async_trait]
pub trait ThreadRunStore:
    ThreadStore
    + RunStore
    + LeaseStore
    + DecisionStore
    + GrantStore
    + ChildStore
    + CommandStore
    + QueueStore
    + AuditStore
{
    /// Writes the state after a stage of a run, in one transaction.
    ///
    /// New messages get the next positions and the time of the run's last change. When the run is done, its
    /// pending questions are superseded and its job ends; the lease is released if the checkpoint says so. The store
    /// need not wait for the disk if the only thing to write is an answer of the model in a run that continues: any
    /// later write waits for both.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another process owns the thread now; see [`StoreError`] for the rest.
    /// Nothing was written.
    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), StoreError>;

    /// Writes that a tool is about to start, in one transaction that also spends the decision. The tool may start only
    /// after this returned.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::NotDecided`], [`StoreError::AlreadyStarted`]; see [`StoreError`] for the
    /// rest. Nothing was written, and the tool must not start.
    async fn begin(&self, begin: ExecutionStart) -> Result<(), StoreError>;

    /// [`ThreadRunStore::checkpoint`] and [`ThreadRunStore::begin`] in one transaction.
    ///
    /// # Errors
    /// As both.
    async fn checkpoint_and_begin(
        &self,
        checkpoint: Checkpoint,
        begin: ExecutionStart,
    ) -> Result<(), StoreError>;

    /// Deletes a thread with its children and everything that belongs to them, except for the audit, which names
    /// the actor. Returns `false` if the thread does not exist. `own` may be the owner of the thread.
    ///
    /// # Errors
    /// [`StoreError::Owned`] while another live process drives it.
    async fn delete_thread(
        &self,
        thread: &ThreadId,
        own: &Owner,
        actor: Actor,
        now_ms: u64,
    ) -> Result<bool, StoreError>;

    /// The clock that every time in this store comes from (`now_ms`), and by which this machine counts the rest of a lease
    /// (`uptime_ms`). Callers take the times that they give to the store from here.
    fn clock(&self) -> Arc<dyn Clock>;

    /// The mailbox of this store.
    ///
    /// # Errors
    /// [`StoreError::Unopened`].
    fn mailboxes(&self) -> Result<Arc<dyn MailboxStore>, StoreError>;

    /// The values of this store that outlive a thread; `clock` says when they are written.
    ///
    /// # Errors
    /// [`StoreError::Unopened`].
    fn profile_store(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn ProfileStore>, StoreError>;

    /// Reports what other handles of this store commit from now on. Must be called where tokio runs.
    ///
    /// # Errors
    /// [`StoreError::Bell`], [`StoreError::Unopened`].
    fn watch(&self) -> Result<Box<dyn ChangeFeed>, StoreError>;

    /// Returns another handle of this store, for callers that outlive the borrow: both write as one, and
    /// don't report their commits to each other. Opens a store that is not open yet.
    ///
    /// # Errors
    /// [`StoreError::Unopened`].
    fn handle(&self) -> Result<Arc<dyn ThreadRunStore>, StoreError>;

    /// Returns another handle of the same rows, as another process has one: each reports what the other one
    /// commits.
    ///
    /// # Errors
    /// [`StoreError::Unopened`], also when the rows cannot be opened a second time.
    fn another(&self) -> Result<Arc<dyn ThreadRunStore>, StoreError>;

    /// Closes the store for all its handles, after the requests that were sent before.
    async fn close(&self);
}
