//! Presents questions to users: in a terminal, on a desktop, by a program or over the network.

use super::record::SuspensionRecord;
use super::suspension::{Actor, ToolCallResume};

/// Shows questions and decides nothing: an answer comes back as everybody's does. Called by the process that drives the
/// run, after the commit; none of the methods may take long.
pub trait Renderer: Send + Sync {
    /// A question waits for the first time; not for one that is only shown again.
    fn render(&self, question: &SuspensionRecord);

    /// Called after a question was answered and its run resumes. `by` is the user who answered, if known.
    fn decided(&self, question: &SuspensionRecord, answer: &ToolCallResume, by: Option<&Actor>) {
        let _ = (question, answer, by);
    }

    /// Its time ran out.
    fn expired(&self, question: &SuspensionRecord) {
        let _ = question;
    }
}
