//! Reports a child run to the observers of its parent, as one activity that represents all of it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::AgentRuntime;
use aye_core::contract::activity::KnownActivity;
use aye_core::contract::child::{ChildRunState, ChildStatus};
use aye_core::contract::display::{call_summary, shortened};
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::lifecycle::ToolCallOutcome;

/// Longer lines are cut: they are a sign of life, not the text.
const MAX_LINE: usize = 200;

/// Receives the events of a child and reports its progress to the parent's sink.
pub(super) struct ChildSink {
    parent: Arc<dyn EventSink>,
    runtime: AgentRuntime,
    fold: Mutex<ChildFold>,
}

struct ChildFold {
    state: ChildRunState,
    /// The text of the current incomplete line.
    growing: String,
}

impl ChildSink {
    pub(super) fn new(parent: Arc<dyn EventSink>, state: ChildRunState, runtime: AgentRuntime) -> Self {
        Self { parent, runtime, fold: Mutex::new(ChildFold { state, growing: String::new() }) }
    }

    /// Returns the state after an event if it shows the user something new, and whether a question was asked
    /// or settled.
    fn fold(&self, event: &AgentEvent) -> (Option<ChildRunState>, bool) {
        let mut fold = self.fold.lock().expect("no panic while the state is held");
        let ChildFold { state, growing } = &mut *fold;
        let mut asks = false;
        match event {
            AgentEvent::RunStart { .. } => state.status = ChildStatus::Running,
            AgentEvent::StepStart { .. } => {
                state.steps += 1;
                state.tool = None;
                growing.clear();
            }
            AgentEvent::TextDelta { delta } => {
                growing.push_str(delta);
                // Said line by line: every letter would be too much.
                let Some((lines, rest)) = growing.rsplit_once('\n') else { return (None, false) };
                let line = lines.lines().rev().find(|line| !line.trim().is_empty()).map(cut);
                *growing = rest.to_owned();
                match line {
                    Some(line) => state.line = Some(line),
                    None => return (None, false),
                }
            }
            AgentEvent::InferenceComplete { usage, .. } => {
                state.tokens += usage.as_ref().map_or(0, TokenUsage::total);
                if !growing.trim().is_empty() {
                    state.line = Some(cut(growing));
                    growing.clear();
                }
            }
            AgentEvent::ToolCallReady { name, arguments, .. } => {
                let summary = call_summary(name, arguments);
                state.tool = Some(cut(&if summary == *name { summary } else { format!("{name} {summary}") }));
            }
            AgentEvent::ToolCallDone { result, outcome: ToolCallOutcome::Suspended, .. } => {
                if result.suspension.as_ref().is_none_or(|ticket| ticket.is_served()) {
                    return (None, false);
                }
                state.questions += 1;
                asks = true;
            }
            AgentEvent::ToolCallResumed { .. } => asks = true,
            AgentEvent::RunFinish { termination, .. } => {
                state.status = ChildStatus::of_end(termination);
                state.tool = None;
                asks = true;
            }
            // A child of the child: its line is the child's.
            AgentEvent::ActivitySnapshot { activity_type, content, .. } => {
                let Some(KnownActivity::Child(below)) = KnownActivity::of(activity_type, content) else {
                    return (None, false);
                };
                let doing = below.tool.as_ref().or(below.line.as_ref());
                let doing = doing.map_or_else(|| below.status.word().to_owned(), Clone::clone);
                state.tool = Some(cut(&format!("{} › {doing}", below.agent)));
            }
            AgentEvent::Error { message, .. } => state.line = Some(cut(message)),
            AgentEvent::ReasoningDelta { .. }
            | AgentEvent::ReasoningEncryptedValue { .. }
            | AgentEvent::ToolCallStart { .. }
            | AgentEvent::ToolCallDelta { .. }
            | AgentEvent::ToolCallDone { .. }
            | AgentEvent::ToolCallStreamDelta { .. }
            | AgentEvent::MessagesSnapshot { .. }
            | AgentEvent::ActivityDelta { .. }
            | AgentEvent::StepEnd
            | AgentEvent::StateSnapshot { .. }
            | AgentEvent::StateDelta { .. } => return (None, false),
        }
        (Some(state.clone()), asks)
    }
}

fn cut(line: &str) -> String {
    shortened(line.trim(), MAX_LINE).into_owned()
}

#[async_trait]
impl EventSink for ChildSink {
    async fn emit(&self, event: AgentEvent) {
        let (state, asks) = self.fold(&event);
        if let Some(state) = state {
            let call = state.parent_call_id.clone();
            self.parent.emit(KnownActivity::Child(Box::new(state)).event(call)).await;
        }
        if asks {
            self.runtime.children_changed();
        }
    }

    fn waits(&self) {
        self.parent.waits();
    }
}
