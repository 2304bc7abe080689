//! Lists for programs that embed aye: page by page, in an order that later additions do not change.

use super::audit;
use super::mailbox::{jobs_from, next_jobs};
use super::rows::{all, int, run_status};
use super::runs::run_of;
use super::suspensions::listed_from;
use super::{AuditFilter, JobFilter, Mailbox, Slice, Store, StoreError, SuspensionFilter};
use aye_core::contract::audit::AuditRow;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};
use aye_core::contract::record::{RunRecord, StoredMessage, SuspensionRecord, ThreadSummary};

/// A page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    offset: usize,
    limit: usize,
}

impl Page {
    /// Entries of a page by default.
    pub const DEFAULT_LIMIT: usize = 50;
    /// Maximum entries of a page.
    pub const MAX_LIMIT: usize = 200;

    /// From the entry `offset` on, at most `limit`: 1 to [`Page::MAX_LIMIT`], other numbers count as the nearest of these.
    pub fn new(offset: usize, limit: usize) -> Self {
        Self { offset, limit: limit.clamp(1, Self::MAX_LIMIT) }
    }

    /// Returns the page after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self { offset: self.offset.saturating_add(self.limit), ..self }
    }

    /// Returns the maximum number of entries.
    pub fn limit(self) -> usize {
        self.limit
    }

    /// Returns the number of entries before the page.
    pub fn offset(self) -> usize {
        self.offset
    }

    /// Limit and offset for SQL.
    fn bounds(self) -> (i64, i64) {
        (int(self.limit as u64), int(self.offset as u64))
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new(0, Self::DEFAULT_LIMIT)
    }
}

/// Limit and offset for SQL.
pub(super) trait SliceBounds {
    fn bounds(self) -> (i64, i64);
}

impl SliceBounds for Slice {
    fn bounds(self) -> (i64, i64) {
        (int(self.limit as u64), int(self.offset as u64))
    }
}

impl Store {
    /// The ids of threads, oldest first. Those of children are left out.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    pub async fn list_threads(&self, page: Page) -> Result<Vec<ThreadId>, StoreError> {
        self.read(move |conn| {
            let sql = "SELECT id FROM thread WHERE NOT EXISTS (SELECT 1 FROM child c WHERE c.thread_id = thread.id) \
                       ORDER BY n LIMIT ?1 OFFSET ?2";
            all(conn, sql, page.bounds(), |row| Ok(ThreadId::from(row.get::<_, String>(0)?)))
        })
        .await
    }

    /// The runs of a thread, or of all threads, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn list_runs(
        &self,
        thread: Option<&ThreadId>,
        page: Page,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let thread = thread.cloned();
        self.read(move |conn| {
            let (limit, offset) = page.bounds();
            let sql = "SELECT thread_id, id, body FROM run WHERE (?1 IS NULL OR thread_id = ?1) ORDER BY n LIMIT ?2 OFFSET ?3";
            all(conn, sql, (thread.as_ref().map(ThreadId::as_str), limit, offset), run_of)
        })
        .await
    }

    /// The runs of a thread, or of all threads, in one status or in any, newest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn latest_runs(
        &self,
        thread: Option<&ThreadId>,
        status: Option<RunStatus>,
        slice: Slice,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let (thread, status) = (thread.cloned(), status.map(run_status));
        self.read(move |conn| {
            let sql = "SELECT thread_id, id, body FROM run WHERE (?1 IS NULL OR thread_id = ?1) \
                       AND (?2 IS NULL OR status = ?2) ORDER BY n DESC LIMIT ?3 OFFSET ?4";
            let of = thread.as_ref().map(ThreadId::as_str);
            let (limit, offset) = slice.bounds();
            all(conn, sql, (of, status, limit, offset), run_of)
        })
        .await
    }

    /// The questions that the filter leaves, oldest first.
    ///
    /// # Errors
    /// As [`Store::suspensions`].
    pub async fn list_suspensions(
        &self,
        filter: SuspensionFilter,
        page: Page,
    ) -> Result<Vec<SuspensionRecord>, StoreError> {
        self.read(move |conn| listed_from(conn, &filter, page.bounds())).await
    }

    /// A part of [`Store::threads`] of all folders.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    pub async fn summaries(&self, slice: Slice) -> Result<Vec<ThreadSummary>, StoreError> {
        self.threads_page(None, slice.offset, Some(slice.limit)).await
    }

    /// A part of the messages of a thread, in order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when one of them is unreadable.
    pub async fn messages_page(&self, id: &ThreadId, slice: Slice) -> Result<Vec<StoredMessage>, StoreError> {
        // Positions in the store start at 1.
        let end = slice.offset.saturating_add(slice.limit).saturating_add(1);
        self.messages_before(id, end as u64, slice.limit).await
    }

    /// A part of the questions that the filter leaves, oldest first.
    ///
    /// # Errors
    /// As [`Store::suspensions`].
    pub async fn suspensions_page(
        &self,
        filter: SuspensionFilter,
        slice: Slice,
    ) -> Result<Vec<SuspensionRecord>, StoreError> {
        self.read(move |conn| listed_from(conn, &filter, slice.bounds())).await
    }

    /// [`Store::waiting_count`] of all threads.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn pending_count(&self, now_ms: u64) -> Result<u64, StoreError> {
        self.waiting_count(None, now_ms).await
    }

    /// A part of the rows of the audit that the filter leaves, oldest first.
    ///
    /// # Errors
    /// As [`Store::audit`].
    pub async fn audit_page(&self, filter: AuditFilter, slice: Slice) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |conn| {
            let mut found = Vec::new();
            if slice.limit > 0 {
                audit::each_after(conn, &filter, slice.offset as u64, |row| {
                    found.push(row);
                    found.len() < slice.limit
                })?;
            }
            Ok(found)
        })
        .await
    }

    /// The jobs of a thread or of all that are queued or claimed, in the order in which they are served.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn open_jobs(
        &self,
        thread: Option<&ThreadId>,
        slice: Slice,
    ) -> Result<Vec<MailboxJob>, StoreError> {
        let statuses = MailboxJobStatus::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
        let filter = JobFilter { mailbox: thread.cloned(), statuses, limit: None };
        self.read(move |conn| next_jobs(conn, &filter, slice.bounds())).await
    }
}

impl Mailbox {
    /// The jobs that the filter leaves, in the order of their numbers. The filter's own limit does not count.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn page_of_jobs(&self, filter: JobFilter, page: Page) -> Result<Vec<MailboxJob>, StoreError> {
        self.store.read(move |conn| jobs_from(conn, &filter, page.bounds())).await
    }
}
