//! Work done before the first message, so that the message does not wait for it.

use std::path::PathBuf;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::open::APPLICATION_ID;
use super::thread_view::MessageSelection;
use super::{
    SqlFailure, Store, Term, children, journal, leases, prompts, runs, summaries, thread_view, threads,
};
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::message::Message;
use aye_core::contract::record::{Checkpoint, Owner, RunRecord, ThreadRecord};

impl Store {
    /// Makes the write-ahead log when there is none, and goes once through what a first message reads and writes, so
    /// that the one that somebody waits for need not: a new log waits for the disk twice before its first commit does,
    /// and planning those statements takes a millisecond. It is no error when that does not work now.
    pub async fn warm(&self) {
        // The mark of the file, written over itself.
        let mark = |tx: &Transaction<'_>| Ok(tx.pragma_update(None, "application_id", APPLICATION_ID)?);
        if let Err(error) = self.write_relaxed(mark).await {
            tracing::debug!(%error, "the log of the store could not be created in advance");
            return;
        }
        let rehearsed = self.call(|conn| {
            // Never committed: nothing of it stays, and nobody is told.
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            rehearse(&tx)
        });
        if let Err(error) = rehearsed.await {
            tracing::debug!(%error, "a first message could not be rehearsed");
        }
    }
}

/// What becomes of a first message until the model is asked.
fn rehearse(conn: &Connection) -> Result<(), SqlFailure> {
    let id = ThreadId::from("rehearsal");
    let thread = ThreadRecord {
        id: id.clone(),
        title: String::new(),
        cwd: PathBuf::new(),
        created_at: 0,
        updated_at: 0,
    };
    let run = RunRecord::new(RunId::from("rehearsal"), id.clone(), "", "", 0);
    let me = Owner { token: "rehearsal".into(), boot_id: String::new(), pid: 0, pid_started: 0 };
    prompts::remember(conn, b"", "rehearsal")?;
    threads::one(conn, &id)?;
    threads::add(conn, &thread)?;
    let Ok(fence) = leases::take(conn, id.clone(), me, Term::ENDLESS, |_| false)? else { return Ok(()) };
    runs::latest(conn, &id)?;
    threads::state_of(conn, &id)?;
    threads::tail(conn, &id, None)?;
    children::one(conn, &id)?;
    summaries::newest(conn, &id, 0)?;
    thread_view::of_thread(conn, &id, MessageSelection::Behind(0))?;
    let messages = vec![Message::user("rehearsal")];
    journal::write_checkpoint(conn, &Checkpoint { messages, ..Checkpoint::new(fence, run) })
}
