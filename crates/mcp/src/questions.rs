//! Calls that stay open while their server's question waits for a user. A server's question lives as long as
//! its connection: everything stored here ends with the process, and a later answer finds nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::call_session::{CallSession, ReplyRoute};
use super::elicitation::Elicitation;

/// The longest time that a call is kept open for a user.
pub(super) const KEPT: Duration = Duration::from_hours(1);

/// A call that waits for a user.
pub(super) struct WaitingCall {
    pub(super) run: String,
    pub(super) call_session: CallSession,
    pub(super) question: Elicitation,
    pub(super) reply: ReplyRoute,
}

/// Clones are the same.
#[derive(Clone, Default)]
pub struct Questions(Arc<Mutex<HashMap<String, WaitingCall>>>);

impl Questions {
    fn edit<T>(&self, edit: impl FnOnce(&mut HashMap<String, WaitingCall>) -> T) -> T {
        edit(&mut self.0.lock().expect("no panic while it is held"))
    }

    /// Keeps a call until it is taken, for a limited time.
    pub(super) fn park(&self, surface: String, parked: WaitingCall) {
        let known = Arc::downgrade(&self.0);
        self.edit(|all| all.insert(surface.clone(), parked));
        tokio::spawn(async move {
            tokio::time::sleep(KEPT).await;
            if let Some(all) = known.upgrade() {
                drop(Self(all).take(&surface));
            }
        });
    }

    pub(super) fn take(&self, surface: &str) -> Option<WaitingCall> {
        self.edit(|all| all.remove(surface))
    }

    /// Drops the calls of this run, because nobody answers their questions any more: their servers are
    /// notified.
    pub fn forget(&self, run: &str) {
        // Dropping a call notifies its server, which must not happen while the lock is held.
        let gone: Vec<WaitingCall> =
            self.edit(|all| all.extract_if(|_, parked| parked.run == run).map(|(_, p)| p).collect());
        drop(gone);
    }

    /// Returns the number of waiting calls.
    pub fn count(&self) -> usize {
        self.edit(|all| all.len())
    }
}
