//! Folds the events of a run into entries.

use serde_json::Value;

use super::{
    EntryKind, Level, Moment, Retry, StorePosition, Todo, ToolEntry, ToolProgress, ToolState, Transcript,
};
use aye_core::contract::activity::{KnownActivity, NoticeActivity};
use aye_core::contract::event::AgentEvent;
use aye_core::contract::executor::CODE_PAUSED;
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::progress::ProgressStatus;

/// Returns what helps against an error of the model's provider.
fn remedy(code: Option<&str>) -> Option<&'static str> {
    match code? {
        "unauthorized" => Some("/login stores another key, /model chooses another model"),
        "context_overflow" => Some("/compact shortens the conversation, /rewind goes back in it"),
        "rate_limited" | "unavailable" | CODE_PAUSED => Some("/model chooses another model"),
        _ => None,
    }
}

impl Transcript {
    /// Takes in one event.
    pub fn apply(&mut self, at: Moment, event: &AgentEvent) {
        self.at = Some(at);
        self.fold(at, event);
        self.at = None;
    }

    fn fold(&mut self, at: Moment, event: &AgentEvent) {
        match event {
            AgentEvent::RunStart { .. } => {
                self.retry = None;
                self.stopped = false;
                self.saw_error = false;
                self.step = self.entries.len();
            }
            AgentEvent::StepStart { message_id } => {
                self.close_texts(false);
                self.mark(|| StorePosition::Message(message_id.clone()));
                self.step = self.entries.len();
            }
            AgentEvent::TextDelta { delta } => self.grow(delta, false),
            AgentEvent::ReasoningDelta { delta } => self.grow(delta, true),
            AgentEvent::ToolCallStart { id, name } => {
                self.close_texts(false);
                self.push(EntryKind::Tool(Box::new(ToolEntry::new(id, name))), false);
            }
            AgentEvent::ToolCallDelta { id, args_delta } => {
                self.change_tool(id, |tool| tool.received += args_delta.len());
            }
            AgentEvent::ToolCallReady { id, name, arguments } => self.propose(id, name, arguments),
            AgentEvent::ToolCallStreamDelta { id, delta, .. } => self.change_tool(id, |tool| {
                tool.run(at);
                tool.tail.push(delta);
            }),
            AgentEvent::ToolCallResumed { target_id, result } => self.change_tool(target_id, |tool| {
                if tool.result.is_none() {
                    if let Some(arguments) = result.get("edited") {
                        tool.edit(arguments);
                    }
                    // The call runs at once; the time it waited before was the user's.
                    tool.started = None;
                    tool.run(at);
                }
            }),
            AgentEvent::ToolCallDone { id, result, outcome, .. } => {
                if self.tool_index(id).is_none() {
                    self.propose(id, &result.tool_name, &Value::Null);
                }
                self.settle_tool(id, Some(at), result, *outcome);
                self.begin_next(at);
            }
            AgentEvent::InferenceComplete { model, usage, .. } => {
                self.answered(model);
                self.close_texts(false);
                // Calls still incomplete when the answer ends were cut off and dropped.
                self.drop_partial_calls();
                if let Some(usage) = usage {
                    self.count(model, usage);
                }
                self.begin_next(at);
            }
            AgentEvent::StepEnd => self.close_texts(false),
            AgentEvent::ActivitySnapshot { message_id, activity_type, content, .. } => {
                self.activity(at, message_id, activity_type, content);
            }
            AgentEvent::Error { message, code } => {
                self.close_texts(true);
                self.saw_error = true;
                self.retry = None;
                let remedy = remedy(code.as_deref()).filter(|remedy| !message.contains(remedy));
                let remedy = remedy.map(|remedy| format!("\n{remedy}")).unwrap_or_default();
                self.note(Level::Error, format!("{message}{remedy}"));
            }
            AgentEvent::RunFinish { termination, .. } => self.finish(termination),
            AgentEvent::ReasoningEncryptedValue { .. }
            | AgentEvent::MessagesSnapshot { .. }
            | AgentEvent::ActivityDelta { .. }
            | AgentEvent::StateSnapshot { .. }
            | AgentEvent::StateDelta { .. } => {}
        }
    }

    pub(super) fn propose(&mut self, id: &str, name: &str, arguments: &Value) {
        let known = self.tool_index(id).filter(|index| match &self.entries[*index].kind {
            // An id of an earlier turn is another call.
            EntryKind::Tool(tool) => !tool.is_over(),
            _ => false,
        });
        if known.is_none() {
            self.push(EntryKind::Tool(Box::new(ToolEntry::new(id, name))), false);
        }
        self.change_tool(id, |tool| {
            name.clone_into(&mut tool.name);
            tool.arguments = arguments.clone();
            tool.received = 0;
            if tool.state == ToolState::Receiving {
                tool.state = ToolState::Proposed;
            }
        });
    }

    pub(super) fn settle_tool(
        &mut self,
        id: &str,
        at: Option<Moment>,
        result: &aye_core::contract::tool::ToolResult,
        outcome: aye_core::contract::lifecycle::ToolCallOutcome,
    ) {
        let Some(index) = self.tool_index(id) else { return };
        let mut plan = None;
        let before = &mut self.todos;
        if let Some(EntryKind::Tool(tool)) = self.entries.get_mut(index).map(|entry| &mut entry.kind) {
            tool.settle(at, result, outcome);
            self.pictured += usize::from(!tool.images.is_empty());
            if tool.state == ToolState::Done && tool.name == "TodoWrite" {
                tool.planned = std::mem::take(before);
                plan = Some(Todo::all(&tool.arguments));
            }
        }
        if let Some(plan) = plan {
            self.todos = plan;
            self.is_plan_over = false;
        }
        self.touch(index, |entry| {
            if let EntryKind::Tool(tool) = &entry.kind {
                entry.is_done = tool.is_over();
            }
        });
    }

    /// Calls are gone through in order and the start of one is not an event of its own: when the answer is complete,
    /// the first call that is not settled is the one in hand, unless a question is open.
    fn begin_next(&mut self, at: Moment) {
        let open = self.tools().find(|tool| !tool.is_over());
        let first = open.filter(|tool| tool.state == ToolState::Proposed).map(|tool| tool.call_id.clone());
        if let Some(call_id) = first {
            self.change_tool(&call_id, |tool| tool.run(at));
        }
    }

    /// Appends text to the growing entry, or starts a new one.
    pub(super) fn grow(&mut self, delta: &str, is_thought: bool) {
        let last = self.entries.len().checked_sub(1).filter(|index| !self.entries[*index].is_done);
        let fits = last.filter(|index| match self.entries[*index].kind {
            EntryKind::Assistant { .. } => !is_thought,
            EntryKind::Thinking { .. } => is_thought,
            _ => false,
        });
        match fits {
            Some(index) => self.touch(index, |entry| match &mut entry.kind {
                EntryKind::Assistant { text, .. } | EntryKind::Thinking { text } => text.push_str(delta),
                _ => {}
            }),
            None if delta.is_empty() => {}
            None => {
                self.close_texts(false);
                let text = delta.to_owned();
                let kind = if is_thought {
                    EntryKind::Thinking { text }
                } else {
                    EntryKind::Assistant { text, interrupted: false }
                };
                self.push(kind, false);
            }
        }
    }

    /// No text of this step grows any more.
    pub(super) fn close_texts(&mut self, cut_off: bool) {
        for index in self.settled..self.entries.len() {
            let is_text =
                matches!(self.entries[index].kind, EntryKind::Assistant { .. } | EntryKind::Thinking { .. });
            if !is_text || self.entries[index].is_done {
                continue;
            }
            let at = self.at;
            self.touch(index, |entry| {
                entry.is_done = true;
                entry.took = at.zip(entry.began).map(|(at, began)| at.since(began));
                if let EntryKind::Assistant { interrupted, .. } = &mut entry.kind {
                    *interrupted = cut_off;
                }
            });
        }
    }

    pub(super) fn count(&mut self, model: &str, usage: &TokenUsage) {
        self.charge(model, usage);
        if usage.total() > 0 {
            self.context = usage.total();
        }
    }

    fn charge(&mut self, model: &str, usage: &TokenUsage) {
        self.usage.add(usage);
        ModelUsage::add_to(&mut self.spent, model, usage);
    }

    fn activity(&mut self, at: Moment, call_id: &str, kind: &str, content: &Value) {
        match KnownActivity::of(kind, content) {
            Some(KnownActivity::Progress(state)) => {
                let progress = ToolProgress::of(&state);
                self.change_tool(call_id, |tool| {
                    if state.status == ProgressStatus::Running {
                        tool.run(at);
                    }
                    tool.progress = progress;
                });
            }
            Some(KnownActivity::Child(state)) => self.change_tool(call_id, |tool| tool.serve(at, *state)),
            Some(KnownActivity::Notice(NoticeActivity { source, text, level, agent, model })) => {
                let level = match level.as_deref() {
                    Some("warning") => Level::Warning,
                    Some("error") => Level::Error,
                    _ => Level::Info,
                };
                if let Some(agent) = agent {
                    self.handed_to = Some((agent, model.unwrap_or_default()));
                }
                self.note(level, if source.is_empty() { text } else { format!("{source}: {text}") });
            }
            Some(KnownActivity::Compacted(history)) => {
                let upto = history.upto_seq.unwrap_or(u64::MAX);
                // A summary may be reported again by another run.
                if upto > self.summarised
                    && let Some(usage) = history.usage
                {
                    self.charge(&history.model, &usage);
                }
                self.note_summary(upto, &history.text);
            }
            Some(KnownActivity::Retry(retry)) => {
                if retry.reset {
                    self.withdraw(&retry.reason);
                }
                self.retry = Some(Retry {
                    attempt: retry.attempt,
                    max: retry.max,
                    until: at.plus(retry.delay_ms),
                    // The first retry of a step uses the requested model, unless that model was not retried.
                    model: retry.instead.then_some(retry.model),
                    reason: retry.reason,
                });
            }
            Some(KnownActivity::Steered(_)) | None => {}
        }
    }

    /// Records which fallback model answered, or that the requested one did; adds a notice when a new
    /// fallback answers.
    fn answered(&mut self, model: &str) {
        let stands_in = self.retry.take().and_then(|retry| retry.model).map(|_| model.to_owned());
        if let Some(model) = stands_in.as_ref().filter(|model| self.stands_in.as_ref() != Some(model)) {
            self.note(Level::Info, format!("{model} answered instead"));
        }
        self.stands_in = stands_in;
    }

    /// The answer so far does not count: it comes again from its start.
    fn withdraw(&mut self, reason: &str) {
        let from = self.step.max(self.settled);
        let had_more = self.entries.len() > from || self.step < self.settled;
        self.entries.truncate(from);
        if had_more {
            let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            self.note(Level::Warning, format!("the answer was cut off; requesting it again{why}"));
        }
        self.step = self.entries.len();
    }

    fn drop_partial_calls(&mut self) {
        let from = self.settled;
        let is_partial = |kind: &EntryKind| match kind {
            EntryKind::Tool(tool) => tool.state == ToolState::Receiving,
            _ => false,
        };
        let mut index = 0;
        self.entries.retain(|entry| {
            index += 1;
            index <= from || !is_partial(&entry.kind)
        });
        self.advance();
    }

    pub(super) fn finish(&mut self, termination: &TerminationReason) {
        self.retry = None;
        self.stopped = false;
        let cut_off = matches!(termination, TerminationReason::Cancelled | TerminationReason::Error(_));
        self.close_texts(cut_off);
        if *termination == TerminationReason::Suspended {
            return;
        }
        // Calls that never arrived whole are dropped; those that never got a result did not run, or were stopped.
        self.drop_partial_calls();
        let from = self.settled;
        for index in from..self.entries.len() {
            self.touch(index, |entry| {
                if let EntryKind::Tool(tool) = &mut entry.kind {
                    if !tool.is_over() && tool.state != ToolState::Unknown {
                        tool.state = ToolState::Cancelled;
                    }
                    entry.is_done = true;
                }
            });
        }
        match termination {
            TerminationReason::Cancelled => self.note(Level::Info, "interrupted"),
            TerminationReason::Stopped(why) => self.push_stopped_notice(why),
            TerminationReason::Blocked(why) => self.note(Level::Error, format!("blocked: {why}")),
            TerminationReason::Error(why) if !self.saw_error => self.note(Level::Error, why),
            TerminationReason::Error(_)
            | TerminationReason::NaturalEnd
            | TerminationReason::BehaviorRequested
            | TerminationReason::Suspended => {}
        }
        self.step = self.entries.len();
    }
}
