//! Folds commits of other processes into the entries, so that a followed conversation looks as it does in the process
//! that drives it, and as it will when reopened.

use super::{Moment, Tail, ToolState, Transcript};
use crate::host::{ThreadOwner, ThreadSync};
use aye_core::contract::child::TaskRecord;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;

impl Transcript {
    /// Takes in what is new in the store. Messages up to `seen` are known already.
    pub fn sync(&mut self, at: Moment, sync: &ThreadSync, seen: u64) {
        // Messages sent here and not accepted yet will come after the messages that others sent before.
        let words = self.take_words();
        for stored in sync.messages.iter().filter(|stored| stored.seq > seen) {
            self.mark_stored(stored);
            self.take_message(&stored.message);
        }
        for stored in &sync.results {
            self.take_message(&stored.message);
        }
        self.note_summaries(&sync.summaries);
        // When its process is gone, what a call came to is for recovery to judge.
        let is_driven = matches!(sync.driver, ThreadOwner::Other(_));
        for open in sync.running.iter().filter(|_| is_driven) {
            let call_id = open.intent.id.call_id.as_str();
            let Some(tool) = self.tool(call_id).filter(|tool| !tool.is_over()) else { continue };
            let mut printed = Tail::default();
            printed.push(&open.output);
            if tool.state != ToolState::Running || tool.tail != printed {
                self.change_tool(call_id, |tool| {
                    tool.run(at);
                    tool.tail = printed;
                });
            }
        }
        self.serve_calls(at, &sync.thread.id, &sync.children);
        for record in sync.waiting.iter().filter(|record| record.thread_id == sync.thread.id) {
            let call_id = record.call_id.as_str();
            if self.tool(call_id).is_some_and(|tool| !tool.is_over() && !tool.is_asked(&record.ticket)) {
                self.change_tool(call_id, |tool| tool.wait(Some(&record.ticket)));
            }
        }
        for words in words {
            self.push(words, false);
        }
    }

    /// Shows the agents at work beneath the calls that they serve.
    pub(super) fn serve_calls(&mut self, at: Moment, thread: &ThreadId, children: &[TaskRecord]) {
        let own = |task: &&TaskRecord| task.child.parent_thread == *thread && !task.child.background;
        for task in children.iter().filter(own) {
            self.change_tool(task.child.parent_call.as_str(), |tool| tool.serve(at, task.state()));
        }
    }

    /// Ends the latest run if the store says that it is done, which no event reported.
    pub fn sync_end(&mut self, sync: &ThreadSync) {
        let run = sync.run.as_ref().filter(|run| run.status == RunStatus::Done);
        if let Some(termination) = run.and_then(|run| run.termination.as_ref()) {
            let words = self.take_words();
            self.saw_error = false;
            self.finish(termination);
            for words in words {
                self.push(words, false);
            }
        }
    }
}
