//! Work done before the first message, so that the message does not wait for it.

use std::path::PathBuf;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::open::APPLICATION_ID;
use super::{
    MessageSelection, SqlFailure, Store, children, journal, leases, prompts, runs, summaries, thread_view,
    threads,
};
use aye_core::contract::clock::SystemClock;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::message::Message;
use aye_core::contract::presence::Liveness;
use aye_core::contract::record::{Checkpoint, Owner, RunRecord, ThreadRecord};

impl Store {
    /// Creates the write-ahead log if there is none, and runs once through the reads and writes of a first
    /// message, so that the first message a user waits for need not: a new log needs two fsyncs before its
    /// first commit, and planning those statements takes a millisecond. Failing to do so is not an error.
    pub async fn warm(&self) {
        // The mark of the file, written over itself.
        let mark = |tx: &Transaction<'_>| Ok(tx.pragma_update(None, "application_id", APPLICATION_ID)?);
        if let Err(error) = self.write_relaxed(mark).await {
            tracing::debug!(%error, "the log of the store could not be created in advance");
            return;
        }
        let rehearsed = self.call(|conn| {
            // Never committed, so nothing is kept and no change is published.
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            warm_up(&tx)
        });
        if let Err(error) = rehearsed.await {
            tracing::debug!(%error, "the first commit could not be warmed up");
        }
    }
}

/// Performs the reads and writes of a first message up to the request to the model.
fn warm_up(conn: &Connection) -> Result<(), SqlFailure> {
    let id = ThreadId::from("rehearsal");
    let thread = ThreadRecord {
        id: id.clone(),
        title: String::new(),
        cwd: PathBuf::new(),
        created_at: 0,
        updated_at: 0,
    };
    let run = RunRecord::new(RunId::from("rehearsal"), id.clone(), "", "", 0);
    let me = Owner { token: "rehearsal".into(), ..Owner::default() };
    prompts::remember(conn, b"", "rehearsal")?;
    threads::one(conn, &id)?;
    threads::add(conn, &thread)?;
    let Ok(fence) = leases::take(conn, &SystemClock, id.clone(), me, None, |_| Liveness::No)? else {
        return Ok(());
    };
    runs::latest(conn, &id)?;
    threads::state_of(conn, &id)?;
    threads::tail(conn, &id, None)?;
    children::one(conn, &id)?;
    summaries::newest(conn, &id, 0)?;
    thread_view::of_thread(conn, &SystemClock, &id, MessageSelection::Behind(0))?;
    let messages = vec![Message::user("rehearsal")];
    journal::write_checkpoint(conn, &Checkpoint { messages, ..Checkpoint::new(fence, run) })
}
