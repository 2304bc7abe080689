//! The current activity of a run.

use super::{EntryKind, ToolState, Transcript};

/// The activity of a run: what it is waiting for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunActivity {
    /// The model was asked and said nothing yet.
    Asking,
    Thinking,
    Answering,
    /// The model writes a call of this tool.
    Calling(String),
    Running(String),
    /// This number of calls run.
    Several(usize),
}

impl Transcript {
    /// Returns what an active run is waiting for.
    pub fn run_activity(&self) -> RunActivity {
        let mut running = self.tools().filter(|tool| tool.state == ToolState::Running);
        if let Some(first) = running.next() {
            return match running.count() {
                0 => RunActivity::Running(first.name.clone()),
                more => RunActivity::Several(more + 1),
            };
        }
        let last = self.entries[self.settled..].iter().rfind(|entry| !entry.is_done);
        match last.map(|entry| &entry.kind) {
            Some(EntryKind::Thinking { .. }) => RunActivity::Thinking,
            Some(EntryKind::Assistant { .. }) => RunActivity::Answering,
            Some(EntryKind::Tool(tool)) if tool.state == ToolState::Receiving => {
                RunActivity::Calling(tool.name.clone())
            }
            Some(
                EntryKind::Tool(_)
                | EntryKind::User { .. }
                | EntryKind::Notice { .. }
                | EntryKind::Page(_)
                | EntryKind::Changes(_)
                | EntryKind::Document(_),
            )
            | None => RunActivity::Asking,
        }
    }
}
