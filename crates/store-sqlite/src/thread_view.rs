//! A thread read in one transaction, for front ends.

use rusqlite::Connection;

use super::{
    MessageSelection, SqlFailure, Store, StoreError, ThreadView, children, commands, journal, leases,
    mailbox, runs, summaries, threads,
};
use aye_core::contract::clock::Clock;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::SuspensionStatus;

impl Store {
    /// Reads a thread: all of it, or only the messages after a position. Returns `None` if the thread does
    /// not exist.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when something is unreadable; with all messages, also when one is missing.
    pub async fn thread_view(
        &self,
        thread: &ThreadId,
        after: Option<u64>,
    ) -> Result<Option<ThreadView>, StoreError> {
        self.thread_view_at(thread, after.map_or(MessageSelection::All, MessageSelection::Behind)).await
    }

    /// Reads a thread like [`Store::thread_view`], with any part of its messages.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when something is unreadable, or a message is missing unless only those after
    /// a position are requested.
    pub async fn thread_view_at(
        &self,
        thread: &ThreadId,
        part: MessageSelection,
    ) -> Result<Option<ThreadView>, StoreError> {
        let (id, clock) = (thread.clone(), self.clock());
        self.read(move |conn| of_thread(conn, &*clock, &id, part)).await
    }
}

pub(super) fn of_thread(
    conn: &Connection,
    clock: &dyn Clock,
    id: &ThreadId,
    part: MessageSelection,
) -> Result<Option<ThreadView>, SqlFailure> {
    let Some(thread) = threads::one(conn, id)? else { return Ok(None) };
    let run = runs::latest(conn, id)?;
    let unfinished = run.as_ref().filter(|run| run.status != RunStatus::Done);
    let mut decided = 0;
    if unfinished.is_some() {
        decided += children::answers_of(conn, id)?;
        for thread in children::below(conn, id, true)? {
            decided += children::answers_of(conn, &thread)?;
        }
    }
    let (total, messages) = match part {
        MessageSelection::All => threads::tail(conn, id, None)?,
        MessageSelection::Last(count) => threads::tail(conn, id, Some(count))?,
        MessageSelection::Behind(seq) => {
            let messages = threads::after(conn, id, seq)?;
            (messages.last().map_or(seq, |message| message.seq), messages)
        }
    };
    Ok(Some(ThreadView {
        total,
        lease: leases::lease_of(conn, clock, id)?,
        messages,
        waiting: children::questions_below(conn, id, SuspensionStatus::Open, false)?,
        decided,
        children: children::tasks_below(conn, id, true)?,
        commands: commands::below(conn, id, true)?,
        running: match unfinished {
            Some(run) => journal::open_of(conn, &run.id)?,
            None => Vec::new(),
        },
        queued: mailbox::of_thread(conn, id)?,
        summaries: summaries::newest_of(conn, id)?,
        run,
        thread,
    }))
}
