//! The answer of a remote agent: its text as it arrives, and how the exchange ends.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use aye_core::contract::content::ContentBlock;
use aye_core::contract::display::{shortened, visible_line};
use aye_core::contract::executor::{InferenceExecutionError, LlmStreamEvent};
use aye_core::contract::inference::{StopReason, StreamResult};
use aye_core::contract::message::ToolCall;
use aye_encode::a2a::{A2aPart, A2aResponse, A2aTaskStatus};
use tokio::sync::mpsc::UnboundedSender;

use super::client::cleaned;

/// Maximum bytes of text that one exchange accepts; the rest is left out.
pub(crate) const MAX_TEXT: usize = 256 << 10;

/// What the run reads of an exchange.
pub(crate) type ExchangeEvent = Result<LlmStreamEvent, InferenceExecutionError>;

/// How an exchange ended.
pub(crate) enum ExchangeOutcome {
    Done,
    /// The agent refused the task; its reason.
    Rejected(String),
    /// The agent asks the user with these calls.
    Asks(Vec<ToolCall>),
}

/// The text of a message or an artifact. Files are named and not fetched.
pub(crate) fn text_of(parts: &[A2aPart]) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            A2aPart { text: Some(text), .. } => out.push_str(&cleaned(text)),
            A2aPart { data: Some(data), .. } => out.push_str(&cleaned(&data.to_string())),
            A2aPart { filename, .. } => {
                let name = shortened(&visible_line(filename), 100).into_owned();
                let _ = write!(out, "[a file that was not fetched: {name}]");
            }
        }
        if out.len() > MAX_TEXT {
            break;
        }
    }
    out
}

/// Turns the updates of a task into the events of an inference: each piece of text once.
pub(crate) struct AnswerStream {
    out: UnboundedSender<ExchangeEvent>,
    model: String,
    /// Artifacts of earlier exchanges, which are not repeated.
    known: HashSet<String>,
    /// The artifacts of this exchange: id and text.
    artifacts: Vec<(String, String)>,
    /// The text that was emitted.
    emitted: String,
}

impl AnswerStream {
    pub(crate) fn new(out: UnboundedSender<ExchangeEvent>, model: String) -> Self {
        Self { out, model, known: HashSet::new(), artifacts: Vec::new(), emitted: String::new() }
    }

    /// Leaves out artifacts that were there before the message.
    pub(crate) fn skip(&mut self, before: &[String]) {
        self.known.extend(before.iter().cloned());
    }

    /// Returns the ids of all artifacts that the task has so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        let own = self.artifacts.iter().map(|(id, _)| id).filter(|id| !id.is_empty());
        let mut seen: Vec<_> = self.known.iter().chain(own).cloned().collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    pub(crate) fn has_text(&self) -> bool {
        !self.emitted.trim().is_empty()
    }

    /// Adds text that belongs to no artifact.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.artifacts.push((String::new(), text.to_owned()));
        self.emit();
    }

    /// Applies an update. Returns the status that it contains.
    pub(crate) fn apply(&mut self, update: A2aResponse) -> Option<A2aTaskStatus> {
        match update {
            A2aResponse::Task(task) => {
                // A whole task replaces what its updates added up to.
                let new =
                    task.artifacts.iter().filter(|artifact| !self.known.contains(&artifact.artifact_id));
                let new: Vec<_> =
                    new.map(|artifact| (artifact.artifact_id.clone(), text_of(&artifact.parts))).collect();
                if !new.is_empty() {
                    self.artifacts = new;
                }
                self.emit();
                Some(task.status)
            }
            A2aResponse::StatusUpdate(update) => Some(update.status),
            A2aResponse::ArtifactUpdate(update) => {
                let (id, text) = (update.artifact.artifact_id, text_of(&update.artifact.parts));
                if !self.known.contains(&id) {
                    match self.artifacts.iter_mut().find(|(known, _)| *known == id) {
                        Some((_, whole)) if update.append => {
                            if whole.len() <= MAX_TEXT {
                                whole.push_str(&text);
                            }
                        }
                        Some((_, whole)) => *whole = text,
                        None => self.artifacts.push((id, text)),
                    }
                    self.emit();
                }
                None
            }
            A2aResponse::Message(message) => {
                self.push_text(&text_of(&message.parts));
                None
            }
        }
    }

    /// Emits what is new. Text that no longer starts with what was emitted replaces it.
    fn emit(&mut self) {
        let texts: Vec<&str> =
            self.artifacts.iter().map(|(_, text)| text.as_str()).filter(|text| !text.is_empty()).collect();
        let mut whole = texts.join("\n\n");
        if whole.len() > MAX_TEXT {
            let end = (0..=MAX_TEXT).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or_default();
            whole.truncate(end);
            whole.push_str("\n[the rest was left out]");
        }
        let delta = match whole.strip_prefix(self.emitted.as_str()) {
            Some("") => return,
            Some(more) => more.to_owned(),
            None => {
                let restart = LlmStreamEvent::Retrying {
                    attempt: 1,
                    max: 1,
                    delay: Duration::ZERO,
                    model: self.model.clone(),
                    reason: "the agent replaced its answer".into(),
                    reset: true,
                };
                let _ = self.out.send(Ok(restart));
                whole.clone()
            }
        };
        self.emitted = whole;
        let _ = self.out.send(Ok(LlmStreamEvent::TextDelta(delta)));
    }

    /// Ends the stream. Returns its last events.
    pub(crate) fn finish(mut self, outcome: ExchangeOutcome) -> Vec<ExchangeEvent> {
        let mut last = Vec::new();
        let (tool_calls, stop_reason) = match outcome {
            ExchangeOutcome::Done => {
                if !self.has_text() {
                    self.push_text("(The agent finished without a text.)");
                }
                (Vec::new(), StopReason::EndTurn)
            }
            ExchangeOutcome::Rejected(why) => {
                if !why.is_empty() {
                    last.push(Ok(LlmStreamEvent::StopDetail(why)));
                }
                (Vec::new(), StopReason::Refusal)
            }
            ExchangeOutcome::Asks(calls) => (calls, StopReason::ToolUse),
        };
        for call in &tool_calls {
            last.push(Ok(LlmStreamEvent::ToolCallStart { id: call.id.clone(), name: call.name.clone() }));
            let args_delta = call.arguments.to_string();
            last.push(Ok(LlmStreamEvent::ToolCallDelta { id: call.id.clone(), args_delta }));
        }
        let content =
            if self.emitted.is_empty() { Vec::new() } else { vec![ContentBlock::text(self.emitted)] };
        let result =
            StreamResult { content, tool_calls, stop_reason: Some(stop_reason), ..StreamResult::default() };
        last.push(Ok(LlmStreamEvent::Finish { result, model: self.model }));
        last
    }
}
