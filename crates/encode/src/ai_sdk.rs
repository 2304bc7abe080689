//! AI SDK v6: the UI message stream, the requests of its chat transport, and stored messages as UI messages.
//!
//! A run is one assistant message, whose id is the run's: live, after an answer, and when it is loaded again.

mod messages;
mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::inference::StopReason;
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::suspension::{ACTION_FRONTEND_TOOL, SuspendTicket};
use aye_core::contract::tool::ToolResult;
use serde::Serialize;
use serde_json::{Value, json};

pub use messages::{UiApproval, UiMessage, UiPart, UiRole, UiToolPart, UiToolState, ui_messages};
pub use request::{AiSdkIntent, AiSdkRequest, AiSdkTrigger, UserTurn};

use crate::outcome;

/// A part of the UI message stream: the JSON of one server-sent event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum UiChunk {
    Start {
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
    },
    StartStep,
    TextStart {
        id: String,
    },
    TextDelta {
        id: String,
        delta: String,
    },
    TextEnd {
        id: String,
    },
    ReasoningStart {
        id: String,
    },
    ReasoningDelta {
        id: String,
        delta: String,
    },
    ReasoningEnd {
        id: String,
    },
    ToolInputStart {
        tool_call_id: String,
        tool_name: String,
    },
    ToolInputDelta {
        tool_call_id: String,
        input_text_delta: String,
    },
    ToolInputAvailable {
        tool_call_id: String,
        tool_name: String,
        input: Value,
    },
    ToolInputError {
        tool_call_id: String,
        tool_name: String,
        input: Value,
        error_text: String,
    },
    ToolApprovalRequest {
        approval_id: String,
        tool_call_id: String,
    },
    ToolOutputAvailable {
        tool_call_id: String,
        output: Value,
    },
    ToolOutputError {
        tool_call_id: String,
        error_text: String,
    },
    ToolOutputDenied {
        tool_call_id: String,
    },
    FinishStep,
    Finish {
        finish_reason: UiFinishReason,
    },
    Error {
        error_text: String,
    },
    Abort,
    /// Data of a kind of its own: `data-NAME`.
    #[serde(untagged)]
    Data(UiData),
}

/// A `data-NAME` part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UiData {
    /// `data-` and the name.
    #[serde(rename = "type")]
    pub kind: String,
    /// Parts with the same type and id replace each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub data: Value,
    /// Whether the part is only sent to listeners and not kept in the message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
}

/// Why a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UiFinishReason {
    Stop,
    Length,
    ContentFilter,
    ToolCalls,
    Error,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Reasoning,
}

#[derive(Clone, Debug)]
struct CallProgress {
    name: String,
    stage: CallStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallStage {
    Arriving,
    /// The client has its arguments.
    Known,
    /// It has a result.
    Settled,
}

/// Encodes the events of a run as one UI message stream.
///
/// Send every event through [`encode`](Self::encode). The stream ends when [`is_finished`](Self::is_finished)
/// returns true; close one that has to end earlier with [`fail`](Self::fail).
#[derive(Clone, Debug, Default)]
pub struct AiSdkEncoder {
    message_id: Option<String>,
    is_started: bool,
    is_finished: bool,
    is_in_step: bool,
    open: Option<(BlockKind, String)>,
    /// Number of text and reasoning parts and activities so far, for their ids.
    parts: u64,
    calls: BTreeMap<String, CallProgress>,
    stop_reason: Option<StopReason>,
}

impl AiSdkEncoder {
    /// An encoder for a run that starts.
    pub fn new() -> Self {
        Self::default()
    }

    /// An encoder for a run that continues a message which the client already has, after an answer: its id, and the
    /// calls in it.
    pub fn resuming(message_id: impl Into<String>, calls: impl IntoIterator<Item = String>) -> Self {
        let known = |id| (id, CallProgress { name: String::new(), stage: CallStage::Known });
        Self {
            message_id: Some(message_id.into()),
            calls: calls.into_iter().map(known).collect(),
            ..Self::default()
        }
    }

    /// Creates an encoder for a stream that starts with replayed events, which have no `RunStart`.
    pub fn replaying(run_id: impl Into<String>) -> Self {
        Self { message_id: Some(run_id.into()), ..Self::default() }
    }

    /// Returns whether the last part of the stream was returned.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns the parts for an event. After the end of a run only the start of another one returns any.
    pub fn encode(&mut self, event: &AgentEvent) -> Vec<UiChunk> {
        let mut out = Vec::new();
        if self.is_finished {
            if !matches!(event, AgentEvent::RunStart { .. }) {
                return out;
            }
            *self = Self { parts: self.parts, ..Self::default() };
        }
        if let AgentEvent::RunStart { run_id, .. } = event {
            self.message_id.get_or_insert_with(|| run_id.clone());
        }
        self.start(&mut out);
        match event {
            AgentEvent::RunStart { thread_id, run_id, parent_run_id } => {
                let data = json!({"threadId": thread_id, "runId": run_id, "parentRunId": parent_run_id});
                out.push(transient("run-info", data));
            }
            AgentEvent::StepStart { .. } => {
                self.end_step(&mut out);
                self.is_in_step = true;
                out.push(UiChunk::StartStep);
            }
            AgentEvent::StepEnd => self.end_step(&mut out),
            AgentEvent::TextDelta { delta } => self.grow(BlockKind::Text, delta, &mut out),
            AgentEvent::ReasoningDelta { delta } => self.grow(BlockKind::Reasoning, delta, &mut out),
            // Only the provider can read it.
            AgentEvent::ReasoningEncryptedValue { .. } => {}
            AgentEvent::ToolCallStart { id, name } => {
                self.close_block(&mut out);
                if !self.calls.contains_key(id) {
                    self.note_call(id, name, CallStage::Arriving);
                    out.push(UiChunk::ToolInputStart { tool_call_id: id.clone(), tool_name: name.clone() });
                }
            }
            AgentEvent::ToolCallDelta { id, args_delta } => {
                if self.stage(id) == Some(CallStage::Arriving) && !args_delta.is_empty() {
                    out.push(UiChunk::ToolInputDelta {
                        tool_call_id: id.clone(),
                        input_text_delta: args_delta.clone(),
                    });
                }
            }
            AgentEvent::ToolCallReady { id, name, arguments } => {
                self.close_block(&mut out);
                if matches!(self.stage(id), None | Some(CallStage::Arriving)) {
                    self.input_available(id, name, arguments.clone(), &mut out);
                }
            }
            AgentEvent::ToolCallDone { id, result, outcome, .. } => {
                self.close_block(&mut out);
                self.done(id, result, *outcome, &mut out);
            }
            AgentEvent::ToolCallStreamDelta { id, name, delta } => {
                let data = json!({"toolCallId": id, "toolName": name, "delta": delta});
                out.push(transient("tool-output-delta", data));
            }
            AgentEvent::ToolCallResumed { target_id, result } => {
                let data = json!({"toolCallId": target_id, "result": result});
                out.push(transient("tool-call-resumed", data));
            }
            AgentEvent::MessagesSnapshot { messages } => {
                out.push(transient("messages-snapshot", json!(messages)));
            }
            AgentEvent::ActivitySnapshot { message_id, activity_type, content, replace } => {
                // A snapshot that does not replace the previous one is a part of its own.
                let mut id = format!("{message_id}:{activity_type}");
                if *replace == Some(false) {
                    self.parts += 1;
                    id = format!("{id}:{}", self.parts);
                }
                let data =
                    json!({"messageId": message_id, "activityType": activity_type, "content": content});
                out.push(UiChunk::Data(UiData {
                    kind: "data-activity-snapshot".into(),
                    id: Some(id),
                    data,
                    transient: false,
                }));
            }
            AgentEvent::ActivityDelta { message_id, activity_type, patch } => {
                let data = json!({"messageId": message_id, "activityType": activity_type, "patch": patch});
                out.push(transient("activity-delta", data));
            }
            AgentEvent::InferenceComplete { model, usage, duration_ms, stop_reason } => {
                self.close_block(&mut out);
                self.stop_reason = *stop_reason;
                let data = json!({
                    "model": model,
                    "usage": usage,
                    "durationMs": duration_ms,
                    "stopReason": stop_reason,
                });
                out.push(transient("inference-complete", data));
            }
            AgentEvent::StateSnapshot { snapshot } => {
                out.push(transient("state-snapshot", snapshot.clone()));
            }
            AgentEvent::StateDelta { delta } => out.push(transient("state-delta", json!(delta))),
            // A client stops reading at an `error` part, and the run still has to say how it ends.
            AgentEvent::Error { message, code } => {
                out.push(transient("error", json!({"message": message, "code": code})));
            }
            AgentEvent::RunFinish { run_id, termination, .. } => {
                self.end_step(&mut out);
                out.push(UiChunk::Data(UiData {
                    kind: "data-finish".into(),
                    id: Some(run_id.clone()),
                    data: json!({"runId": run_id, "termination": termination}),
                    transient: false,
                }));
                self.finish(termination, &mut out);
            }
        }
        out
    }

    /// Ends the stream because the events of the run cannot be followed to its end; nothing when it is over already.
    pub fn fail(&mut self, error_text: impl Into<String>) -> Vec<UiChunk> {
        let mut out = Vec::new();
        if !self.is_finished {
            self.start(&mut out);
            self.end_step(&mut out);
            self.finish(&TerminationReason::Error(error_text.into()), &mut out);
        }
        out
    }

    fn start(&mut self, out: &mut Vec<UiChunk>) {
        if !self.is_started {
            self.is_started = true;
            out.push(UiChunk::Start { message_id: self.message_id.clone() });
        }
    }

    fn finish(&mut self, termination: &TerminationReason, out: &mut Vec<UiChunk>) {
        self.is_finished = true;
        let finish_reason = match (termination, self.stop_reason) {
            (TerminationReason::Cancelled, _) => return out.push(UiChunk::Abort),
            (TerminationReason::Error(error_text), _) => {
                out.push(UiChunk::Error { error_text: error_text.clone() });
                UiFinishReason::Error
            }
            (TerminationReason::Suspended, _) => UiFinishReason::ToolCalls,
            (TerminationReason::Stopped(reason), _) if reason.code == "length" => UiFinishReason::Length,
            (_, Some(StopReason::Refusal | StopReason::ContentFilter)) => UiFinishReason::ContentFilter,
            (TerminationReason::Stopped(_) | TerminationReason::Blocked(_), _) => UiFinishReason::Other,
            (_, Some(StopReason::MaxTokens)) => UiFinishReason::Length,
            (TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested, _) => UiFinishReason::Stop,
        };
        out.push(UiChunk::Finish { finish_reason });
    }

    fn end_step(&mut self, out: &mut Vec<UiChunk>) {
        self.close_block(out);
        for (id, call) in &mut self.calls {
            if call.stage == CallStage::Arriving {
                call.stage = CallStage::Settled;
                out.push(UiChunk::ToolInputError {
                    tool_call_id: id.clone(),
                    tool_name: call.name.clone(),
                    input: Value::Null,
                    error_text: "the call did not arrive completely; it did not run".into(),
                });
            }
        }
        if std::mem::take(&mut self.is_in_step) {
            out.push(UiChunk::FinishStep);
        }
    }

    fn grow(&mut self, kind: BlockKind, delta: &str, out: &mut Vec<UiChunk>) {
        if delta.is_empty() {
            return;
        }
        if self.open.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.close_block(out);
            self.parts += 1;
            let id = self.parts.to_string();
            out.push(match kind {
                BlockKind::Text => UiChunk::TextStart { id: id.clone() },
                BlockKind::Reasoning => UiChunk::ReasoningStart { id: id.clone() },
            });
            self.open = Some((kind, id));
        }
        if let Some((_, id)) = &self.open {
            let (id, delta) = (id.clone(), delta.to_owned());
            out.push(match kind {
                BlockKind::Text => UiChunk::TextDelta { id, delta },
                BlockKind::Reasoning => UiChunk::ReasoningDelta { id, delta },
            });
        }
    }

    fn close_block(&mut self, out: &mut Vec<UiChunk>) {
        match self.open.take() {
            Some((BlockKind::Text, id)) => out.push(UiChunk::TextEnd { id }),
            Some((BlockKind::Reasoning, id)) => out.push(UiChunk::ReasoningEnd { id }),
            None => {}
        }
    }

    fn stage(&self, id: &str) -> Option<CallStage> {
        self.calls.get(id).map(|call| call.stage)
    }

    fn note_call(&mut self, id: &str, name: &str, stage: CallStage) {
        self.calls.insert(id.to_owned(), CallProgress { name: name.to_owned(), stage });
    }

    fn input_available(&mut self, id: &str, name: &str, input: Value, out: &mut Vec<UiChunk>) {
        self.note_call(id, name, CallStage::Known);
        out.push(UiChunk::ToolInputAvailable {
            tool_call_id: id.to_owned(),
            tool_name: name.to_owned(),
            input,
        });
    }

    fn done(&mut self, id: &str, result: &ToolResult, outcome: ToolCallOutcome, out: &mut Vec<UiChunk>) {
        let stage = self.stage(id);
        if stage == Some(CallStage::Settled) {
            return;
        }
        let ticket = result.suspension.as_deref();
        let edited = result.touched.as_ref().and_then(|touched| touched.arguments.clone());
        // A client refuses what happens to a call that it does not know. Edited arguments replace those it has.
        if stage != Some(CallStage::Known) || edited.is_some() {
            let asked = || ticket.map(|ticket| ticket.pending.arguments.clone());
            let input = edited.or_else(asked).unwrap_or_else(|| json!({}));
            self.input_available(id, &result.tool_name, input, out);
        }
        let tool_call_id = id.to_owned();
        match (outcome, ticket) {
            (ToolCallOutcome::Suspended, Some(ticket)) => return Self::ask(tool_call_id, ticket, out),
            (ToolCallOutcome::Suspended, None) => return,
            (ToolCallOutcome::Succeeded, _) => {
                out.push(UiChunk::ToolOutputAvailable { tool_call_id, output: outcome::value(result) });
            }
            (ToolCallOutcome::Cancelled, _) if outcome::is_denied(result) => {
                out.push(UiChunk::ToolOutputDenied { tool_call_id });
            }
            (ToolCallOutcome::Failed | ToolCallOutcome::Cancelled, _) => {
                out.push(UiChunk::ToolOutputError { tool_call_id, error_text: outcome::words(result) });
            }
        }
        if let Some(call) = self.calls.get_mut(id) {
            call.stage = CallStage::Settled;
        }
    }

    /// A question goes to the user, unless the client itself or another agent carries out the call.
    fn ask(tool_call_id: String, ticket: &SuspendTicket, out: &mut Vec<UiChunk>) {
        let asked = &ticket.suspension;
        if ticket.is_served() || asked.action == ACTION_FRONTEND_TOOL {
            return;
        }
        out.push(UiChunk::Data(UiData {
            kind: "data-question".into(),
            id: Some(asked.id.to_string()),
            data: json!({
                "id": asked.id,
                "toolCallId": tool_call_id,
                "action": asked.action,
                "message": asked.message,
                "parameters": asked.parameters,
                "responseSchema": asked.response_schema,
                "expiresAt": asked.expires_at,
            }),
            transient: false,
        }));
        out.push(UiChunk::ToolApprovalRequest { approval_id: asked.id.to_string(), tool_call_id });
    }
}

fn transient(name: &str, data: Value) -> UiChunk {
    UiChunk::Data(UiData { kind: format!("data-{name}"), id: None, data, transient: true })
}
