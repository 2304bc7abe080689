//! The conversation on the screen.

use super::RunState;
use crate::host::ThreadOwner;
use crate::tally::RunTally;
use crate::transcript::{Moment, Transcript};
use crate::update::ThreadLoading;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::record::ThreadRecord;

/// The conversation on the screen: its entries, its run, and who drives it.
#[derive(Debug, Default)]
pub struct ShownConversation {
    /// The conversation, once it is open.
    pub thread: Option<ThreadRecord>,
    /// The number of conversations opened, which tells the screen when another one starts.
    pub epoch: u32,
    /// The entries of the conversation.
    pub transcript: Transcript,
    /// The state of the run.
    pub run: RunState,
    pub run_id: Option<RunId>,
    /// The owner of the conversation's active run, if that is another process.
    pub driver: ThreadOwner,
    /// The time of the run's last event.
    pub moved: Moment,
    /// How long the last run took.
    pub last_run_ms: Option<u64>,
    /// The counts of the current run, if it was started here.
    pub(crate) tally: Option<RunTally>,
    /// The place of the last message that the transcript has from the store.
    pub(crate) seen: u64,
    /// The last run whose end was reported.
    pub(crate) ended: Option<RunId>,
    /// Conversations that are being opened, and earlier parts of them that are fetched.
    pub loading: ThreadLoading,
    /// Agents and commands at work in the background.
    pub tasks: usize,
    /// The commands among them: their ids and command lines.
    pub commands: Vec<(String, String)>,
}

impl ShownConversation {
    /// The conversation's id, once it is open.
    pub fn id(&self) -> Option<&ThreadId> {
        self.thread.as_ref().map(|thread| &thread.id)
    }

    /// Whether the run is active.
    pub fn is_active(&self) -> bool {
        self.run.active_since().is_some()
    }
}
