//! Where a program that embeds aye stores threads and runs.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::{Mailbox, OpenError, Store};
use aye_core::contract::ids::{JobId, ThreadId};
use aye_core::contract::mailbox::{MailboxInterrupt, MailboxJob};
use aye_core::contract::record::ThreadRecord;
use aye_core::contract::storage::{MailboxStore, StorageError};

/// Opens a store once.
#[derive(Debug, Default)]
struct Opened(Mutex<Option<Store>>);

impl Opened {
    fn get(&self, open: impl FnOnce() -> Result<Store, OpenError>) -> Result<Store, OpenError> {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some(store) => Ok(store.clone()),
            None => Ok(opened.insert(open()?).clone()),
        }
    }
}

/// Threads and runs that are gone with the program.
#[derive(Debug, Default)]
pub struct InMemoryStore(Opened);

impl InMemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The store; the same one each time.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn store(&self) -> Result<Store, OpenError> {
        self.0.get(Store::in_memory)
    }
}

/// Threads and runs in a folder, which is made when it is first needed: one database, `aye.db`, for all of them.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    opened: Opened,
}

impl FileStore {
    /// The name of the database in the folder.
    pub const FILE: &'static str = "aye.db";

    /// A store in this folder. Nothing is opened or made yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), opened: Opened::default() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The store, which is opened the first time; the same one each time.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn store(&self) -> Result<Store, OpenError> {
        self.opened.get(|| Store::open(&self.folder.join(Self::FILE)))
    }
}

/// A mailbox that is gone with the program.
#[derive(Debug, Default)]
pub struct InMemoryMailboxStore(InMemoryStore);

impl InMemoryMailboxStore {
    /// An empty mailbox.
    pub fn new() -> Self {
        Self::default()
    }

    fn mailbox(&self) -> Result<Mailbox, StorageError> {
        let store = self.0.store().map_err(|e| StorageError::Io(e.to_string()))?;
        Ok(store.mailbox())
    }
}

#[async_trait]
impl MailboxStore for InMemoryMailboxStore {
    async fn enqueue(&self, job: MailboxJob) -> Result<MailboxJob, StorageError> {
        let mailbox = self.mailbox()?;
        // The first job of a thread makes its mailbox.
        let thread = ThreadRecord {
            id: job.mailbox_id.clone(),
            title: String::new(),
            cwd: PathBuf::new(),
            created_at: job.created_at,
            updated_at: job.created_at,
        };
        mailbox.store.ensure_thread(thread).await?;
        Ok(mailbox.enqueue(job).await?)
    }

    async fn claim(
        &self,
        mailbox: &ThreadId,
        consumer: &str,
        limit: usize,
        now: u64,
        lease_ms: u64,
    ) -> Result<Vec<MailboxJob>, StorageError> {
        Ok(self.mailbox()?.claim(mailbox, consumer, limit, now, lease_ms).await?)
    }

    async fn claim_job(
        &self,
        job: &JobId,
        consumer: &str,
        now: u64,
        lease_ms: u64,
    ) -> Result<Option<MailboxJob>, StorageError> {
        Ok(self.mailbox()?.claim_job(job, consumer, now, lease_ms).await?)
    }

    async fn ack(&self, job: &JobId, token: &str, now: u64) -> Result<MailboxJob, StorageError> {
        Ok(self.mailbox()?.ack(job, token, now).await?)
    }

    async fn nack(
        &self,
        job: &JobId,
        token: &str,
        retry_at: u64,
        error: &str,
        now: u64,
    ) -> Result<MailboxJob, StorageError> {
        Ok(self.mailbox()?.nack(job, token, retry_at, error, now).await?)
    }

    async fn cancel(&self, job: &JobId, now: u64) -> Result<Option<MailboxJob>, StorageError> {
        Ok(self.mailbox()?.cancel(job, now).await?)
    }

    async fn extend_lease(
        &self,
        job: &JobId,
        token: &str,
        now: u64,
        lease_ms: u64,
    ) -> Result<bool, StorageError> {
        Ok(self.mailbox()?.extend_lease(job, token, now, lease_ms).await?)
    }

    async fn interrupt(&self, mailbox: &ThreadId, now: u64) -> Result<MailboxInterrupt, StorageError> {
        Ok(self.mailbox()?.interrupt(mailbox, now).await?)
    }

    async fn load_job(&self, job: &JobId) -> Result<Option<MailboxJob>, StorageError> {
        Ok(self.mailbox()?.load_job(job).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aye_core::contract::mailbox::MailboxJobStatus;
    use aye_core::contract::message::Message;

    use super::*;

    #[tokio::test]
    async fn a_mailbox_in_memory_serves_jobs_as_the_trait_says() {
        let store: Arc<dyn MailboxStore> = Arc::new(InMemoryMailboxStore::new());
        let thread = ThreadId::from("thread-1");
        let job = |text: &str| MailboxJob::new("thread-1", vec![Message::user(text)], 10);
        assert!(matches!(store.interrupt(&thread, 11).await, Err(StorageError::NotFound(_))));

        let first = store.enqueue(job("one").with_dedupe_key("k")).await.unwrap();
        let twice = store.enqueue(job("again").with_dedupe_key("k")).await;
        assert!(matches!(twice, Err(StorageError::AlreadyExists(_))), "{twice:?}");
        let claimed = store.claim(&thread, "a", 5, 20, 1000).await.unwrap().remove(0);
        assert_eq!((&claimed.job_id, claimed.status), (&first.job_id, MailboxJobStatus::Claimed));
        assert!(store.claim(&thread, "b", 5, 20, 1000).await.unwrap().is_empty(), "a claim has one winner");
        let token = claimed.claim_token.unwrap();
        assert!(store.extend_lease(&first.job_id, &token, 30, 1000).await.unwrap());
        assert!(!store.extend_lease(&first.job_id, "other", 30, 1000).await.unwrap());
        assert!(store.ack(&first.job_id, "other", 30).await.is_err(), "the token is checked");
        let again = store.nack(&first.job_id, &token, 50, "busy", 31).await.unwrap();
        assert_eq!(
            (again.status, again.attempt_count, again.available_at),
            (MailboxJobStatus::Queued, 1, 50)
        );
        assert!(store.claim(&thread, "a", 1, 40, 1000).await.unwrap().is_empty(), "it is not due");
        let claimed = store.claim_job(&first.job_id, "a", 40, 1000).await.unwrap().unwrap();

        let second = store.enqueue(job("two")).await.unwrap();
        let interrupt = store.interrupt(&thread, 41).await.unwrap();
        assert_eq!(interrupt.superseded_count, 1);
        assert_eq!(interrupt.active_job.unwrap().job_id, first.job_id);
        let superseded = store.load_job(&second.job_id).await.unwrap().unwrap();
        assert_eq!(superseded.status, MailboxJobStatus::Superseded);
        let accepted = store.ack(&first.job_id, &claimed.claim_token.unwrap(), 42).await.unwrap();
        assert_eq!(accepted.status, MailboxJobStatus::Accepted);

        let third = store.enqueue(job("three")).await.unwrap();
        let cancelled = store.cancel(&third.job_id, 43).await.unwrap().unwrap();
        assert_eq!(cancelled.status, MailboxJobStatus::Cancelled);
        assert_eq!(store.cancel(&third.job_id, 44).await.unwrap(), None);
        let missing = store.cancel(&JobId::from("none"), 44).await;
        assert!(matches!(missing, Err(StorageError::NotFound(_))));
    }
}
