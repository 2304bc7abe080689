//! A conversation as it stands in one moment, for a front end that shows it while others may work in it.

use super::{
    Store, StoreError, SuspensionFilter, journal, leases, queue, runs, summaries, suspensions, threads,
};
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::RunStatus;
use crate::contract::record::{
    LeaseRecord, OpenIntent, QueuedMessage, RunRecord, StoredMessage, SuspensionRecord, SuspensionStatus,
    ThreadRecord,
};
use crate::contract::summary::SummaryRecord;

/// See the module's text.
#[derive(Clone, Debug, PartialEq)]
pub struct Glance {
    /// The conversation.
    pub thread: ThreadRecord,
    /// Who has the right to write, alive or not, and until when.
    pub lease: Option<LeaseRecord>,
    /// Messages behind the place that was asked for.
    pub messages: Vec<StoredMessage>,
    /// The latest run.
    pub run: Option<RunRecord>,
    /// Questions that are open, oldest first.
    pub waiting: Vec<SuspensionRecord>,
    /// Answers of the latest run that were not carried out yet.
    pub decided: usize,
    /// Executions of an unfinished latest run that were started and have no outcome yet.
    pub running: Vec<OpenIntent>,
    /// What begins when the thread is free.
    pub queued: Vec<QueuedMessage>,
    /// Summaries that stand for older messages, oldest first.
    pub summaries: Vec<SummaryRecord>,
}

impl Store {
    /// Looks at a thread: everything, or only the messages behind a place. `None`: there is no such thread.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when something is unreadable; with all messages, also when one is missing.
    pub async fn glance(&self, thread: &ThreadId, after: Option<u64>) -> Result<Option<Glance>, StoreError> {
        let id = thread.clone();
        self.read(move |conn| {
            let Some(thread) = threads::one(conn, &id)? else { return Ok(None) };
            let run = runs::latest(conn, &id)?;
            let unfinished = run.as_ref().filter(|run| run.status != RunStatus::Done);
            let open = SuspensionFilter {
                thread: Some(id.clone()),
                status: Some(SuspensionStatus::Open),
                ..SuspensionFilter::default()
            };
            let decided = SuspensionFilter {
                run: unfinished.map(|run| run.id.clone()),
                status: Some(SuspensionStatus::Decided),
                ..SuspensionFilter::default()
            };
            Ok(Some(Glance {
                lease: leases::lease_of(conn, &id)?,
                messages: match after {
                    None => threads::tail(conn, &id, None)?.1,
                    Some(seq) => threads::after(conn, &id, seq)?,
                },
                waiting: suspensions::listed(conn, &open)?,
                decided: match decided.run {
                    Some(_) => suspensions::listed(conn, &decided)?.len(),
                    None => 0,
                },
                running: match unfinished {
                    Some(run) => journal::open_of(conn, &run.id)?,
                    None => Vec::new(),
                },
                queued: queue::of_thread(conn, &id)?,
                summaries: summaries::of_thread(conn, &id)?,
                run,
                thread,
            }))
        })
        .await
    }
}
