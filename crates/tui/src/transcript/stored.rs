//! Rebuilds the entries of a stored conversation, with the fold that live events go through.

use std::collections::HashMap;

use serde_json::Value;

use super::{FIRST_ID, Moment, ToolEntry, ToolState, Transcript};
use crate::host::OpenedThread;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::lifecycle::{RunStatus, ToolCallOutcome};
use aye_core::contract::message::{Message, MessagePart, Role, Visibility};
use aye_core::contract::record::StoredMessage;
use aye_core::contract::tool::ToolResult;

impl Transcript {
    /// The entries of a stored conversation.
    pub fn from_thread(opened: &OpenedThread) -> Transcript {
        let mut transcript = Transcript::default();
        if opened.earlier.is_some() {
            transcript.before = opened.messages.first().map_or(0, |stored| stored.seq);
        }
        // Searching backwards for each call would be slow in a long thread only if a call were far from its result;
        // results follow their calls, so the search is short.
        let mut summaries = opened.summaries.iter().peekable();
        for stored in &opened.messages {
            transcript.mark_stored(stored);
            transcript.take_message(&stored.message);
            let made = std::iter::from_fn(|| summaries.next_if(|summary| summary.at_seq <= stored.seq));
            transcript.note_summaries(made);
        }
        for open in &opened.interrupted {
            transcript.change_tool(open.intent.id.call_id.as_str(), |tool| {
                if tool.result.is_none() {
                    tool.state = ToolState::Unknown;
                    tool.tail.push(&open.output);
                }
            });
        }
        let waiting: HashMap<&str, _> = opened
            .waiting
            .iter()
            .filter(|record| record.thread_id == opened.thread.id)
            .map(|record| (record.call_id.as_str(), &record.ticket))
            .collect();
        for (call_id, ticket) in waiting {
            transcript.change_tool(call_id, |tool| tool.wait(Some(ticket)));
        }
        transcript.serve_calls(Moment::default(), &opened.thread.id, &opened.children);
        if let Some(earlier) = &opened.earlier {
            transcript.usage = earlier.usage;
            transcript.spent.clone_from(&earlier.spent);
        }
        if let Some(run) = opened.run.as_ref().filter(|_| transcript.usage.total() == 0) {
            transcript.usage.add(&run.usage);
            transcript.spent.clone_from(&run.spent);
        }
        let is_over = opened.run.as_ref().is_none_or(|run| run.status == RunStatus::Done);
        if is_over {
            transcript.close_calls();
        }
        transcript
    }

    /// The entries of some messages that are over.
    pub(crate) fn of_messages(messages: &[StoredMessage]) -> Transcript {
        let mut transcript = Transcript::default();
        for stored in messages {
            transcript.take_message(&stored.message);
        }
        transcript.close_calls();
        transcript
    }

    /// Puts older messages before what is here.
    pub fn take_earlier(&mut self, messages: &[StoredMessage]) {
        let Some(first) = messages.first() else {
            self.before = 0;
            return;
        };
        let mut older = Transcript::of_messages(messages);
        let count = older.entries.len();
        // No id comes again: pictures of entries are kept by it.
        for entry in older.entries.iter_mut().rev() {
            self.fetched_ids += 1;
            entry.id = FIRST_ID.saturating_sub(self.fetched_ids);
            entry.is_done = true;
        }
        self.entries.splice(0..0, older.entries);
        self.step += count;
        self.settled += count;
        self.fetched += count;
        self.before = first.seq;
    }

    /// Removes the entries that were fetched only for display. `seq` is where the remaining ones start.
    pub fn forget_earlier(&mut self, seq: u64) {
        let count = std::mem::take(&mut self.fetched);
        self.entries.drain(..count);
        self.entries.shrink_to_fit();
        self.step = self.step.saturating_sub(count);
        self.settled = self.settled.saturating_sub(count);
        self.before = seq;
    }

    pub(super) fn take_message(&mut self, message: &Message) {
        if message.visibility == Visibility::Internal {
            return;
        }
        let metadata = |key: &str| message.metadata.as_ref().and_then(|metadata| metadata.get(key));
        match message.role {
            Role::System => {}
            Role::User if message.reports_task() => self.report(&message.written()),
            Role::User => {
                let images = message.content.iter().filter_map(ContentBlock::as_stored_image);
                let shown = message.shown().map(str::to_owned);
                self.push_user_message_as(message.written(), shown, images.cloned().collect());
            }
            Role::Assistant => {
                for part in message.parts() {
                    match part {
                        MessagePart::Block(ContentBlock::Text { text }) => self.grow(text, false),
                        MessagePart::Block(ContentBlock::Thinking { thinking, .. }) => {
                            self.grow(thinking, true);
                        }
                        MessagePart::Block(_) => {}
                        MessagePart::Call(call) => {
                            self.close_texts(false);
                            self.propose(&call.id, &call.name, &call.arguments);
                        }
                    }
                }
                let interrupted = metadata("interrupted").is_some_and(|value| *value != Value::Bool(false));
                self.close_texts(interrupted);
                if let Some(usage) =
                    metadata("usage").and_then(|usage| serde_json::from_value(usage.clone()).ok())
                {
                    let model = metadata("model").and_then(Value::as_str).unwrap_or_default();
                    self.count(model, &usage);
                }
            }
            Role::Tool => {
                let Some(call_id) = &message.tool_call_id else { return };
                // A result shown when it arrived arrives again when its step is stored.
                if self.tool(call_id).is_some_and(ToolEntry::is_over) {
                    return;
                }
                let stored_result =
                    metadata("tool_result").and_then(|value| serde_json::from_value(value.clone()).ok());
                let mut result: ToolResult = stored_result.unwrap_or_else(|| {
                    let name = self.tool(call_id).map(|tool| tool.name.clone()).unwrap_or_default();
                    ToolResult::text(name, message.text())
                });
                let images = message.content.iter().filter(|block| block.as_stored_image().is_some());
                result.images.extend(images.cloned());
                let outcome =
                    metadata("outcome").and_then(|value| serde_json::from_value(value.clone()).ok());
                let outcome = outcome.unwrap_or(if result.is_error() {
                    ToolCallOutcome::Failed
                } else {
                    ToolCallOutcome::Succeeded
                });
                self.settle_tool(call_id, None::<Moment>, &result, outcome);
            }
        }
    }

    /// Calls without a result in a conversation whose run is over never ran.
    fn close_calls(&mut self) {
        for index in self.settled..self.entries.len() {
            self.touch(index, |entry| {
                if let super::EntryKind::Tool(tool) = &mut entry.kind {
                    if matches!(tool.state, ToolState::Receiving | ToolState::Proposed) {
                        tool.state = ToolState::Cancelled;
                    }
                    entry.is_done = true;
                }
            });
        }
    }
}
