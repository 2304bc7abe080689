//! Calls that stay open while their server's question waits for a person. A server's question lives as long as its
//! connection: what is kept here ends with the process, and an answer that comes later finds nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::call_session::{CallSession, ReplyRoute};
use super::elicitation::Elicitation;

/// So long a call is kept open for a person.
pub(super) const KEPT: Duration = Duration::from_hours(1);

/// A call that waits for a person.
pub(super) struct WaitingCall {
    pub(super) run: String,
    pub(super) talk: CallSession,
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

    /// Keeps a call until somebody takes it, for a while at most.
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

    /// Nobody answers the questions of this run any more: their servers are told so.
    pub fn forget(&self, run: &str) {
        // What is dropped here tells its server, which must not happen while the lock is held.
        let gone: Vec<WaitingCall> =
            self.edit(|all| all.extract_if(|_, parked| parked.run == run).map(|(_, p)| p).collect());
        drop(gone);
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.edit(|all| all.len())
    }
}
