//! AG-UI 1.0: the events of a run, its input, and stored messages in its form.

mod input;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::inference::ModelUsage;
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{
    ACTION_FRONTEND_TOOL, ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME, SuspendTicket,
};
use aye_core::contract::tool::ToolResult;
use serde::Serialize;
use serde_json::{Value, json};

pub use input::{AgUiContext, AgUiIntent, AgUiResume, AgUiResumeStatus, AgUiTool, RunAgentInput};
pub use messages::{AgUiFunction, AgUiMessage, AgUiRole, AgUiToolCall, ag_ui_messages, result_message_id};

use crate::{outcome, time};

/// An event of the protocol: the JSON of one server-sent event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum AgUiEvent {
    RunStarted {
        thread_id: String,
        run_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_run_id: Option<String>,
    },
    RunFinished {
        thread_id: String,
        run_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        outcome: AgUiOutcome,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<AgUiUsage>,
        metadata: Value,
    },
    RunError {
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<AgUiUsage>,
    },
    StepStarted {
        step_name: String,
    },
    StepFinished {
        step_name: String,
    },
    TextMessageStart {
        message_id: String,
        role: AgUiRole,
    },
    TextMessageContent {
        message_id: String,
        delta: String,
    },
    TextMessageEnd {
        message_id: String,
    },
    ReasoningStart {
        message_id: String,
    },
    ReasoningMessageStart {
        message_id: String,
        role: AgUiRole,
    },
    ReasoningMessageContent {
        message_id: String,
        delta: String,
    },
    ReasoningMessageEnd {
        message_id: String,
    },
    ReasoningEnd {
        message_id: String,
    },
    ToolCallStart {
        tool_call_id: String,
        tool_call_name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<String>,
    },
    ToolCallArgs {
        tool_call_id: String,
        delta: String,
    },
    ToolCallEnd {
        tool_call_id: String,
    },
    ToolCallResult {
        message_id: String,
        tool_call_id: String,
        content: String,
        role: AgUiRole,
    },
    StateSnapshot {
        snapshot: Value,
    },
    StateDelta {
        delta: Vec<Value>,
    },
    MessagesSnapshot {
        messages: Vec<AgUiMessage>,
    },
    ActivitySnapshot {
        message_id: String,
        activity_type: String,
        content: Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        replace: Option<bool>,
    },
    ActivityDelta {
        message_id: String,
        activity_type: String,
        patch: Vec<Value>,
    },
    Custom {
        name: String,
        value: Value,
    },
}

/// The outcome of a run that did not fail.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum AgUiOutcome {
    /// It is over, or the client has to carry out calls of its own tools.
    Success {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<String>,
    },
    /// It waits for answers.
    Interrupt {
        /// The questions; at least one.
        interrupts: Vec<AgUiInterrupt>,
    },
    /// The user stopped it.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiInterrupt {
    /// Id of the question, which the answer names.
    pub id: String,
    /// `tool_call`, `input_required` or `confirmation`.
    pub reason: String,
    /// The question for the user.
    pub message: String,
    /// The call that waits.
    pub tool_call_id: String,
    /// JSON Schema of the answer's payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// When the question expires, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// `action` and `parameters`: what a card shows.
    pub metadata: Value,
}

/// Tokens that one model used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiUsage {
    pub model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_input_tokens: Option<u32>,
}

impl From<&ModelUsage> for AgUiUsage {
    fn from(ModelUsage { model, usage }: &ModelUsage) -> Self {
        let count = |tokens: Option<i32>| tokens.and_then(|tokens| u32::try_from(tokens).ok());
        let (input_tokens, output_tokens) = (count(usage.prompt_tokens), count(usage.completion_tokens));
        Self {
            model: model.clone(),
            input_tokens,
            output_tokens,
            total_tokens: input_tokens
                .zip(output_tokens)
                .map(|(left, right)| u64::from(left) + u64::from(right)),
            reasoning_tokens: count(usage.thinking_tokens),
            cached_input_tokens: count(usage.cache_read_tokens),
            cache_write_input_tokens: count(usage.cache_creation_tokens),
        }
    }
}

impl AgUiInterrupt {
    fn of(ticket: &SuspendTicket) -> Self {
        let asked = &ticket.suspension;
        let reason = match asked.action.as_str() {
            ACTION_PERMISSION => "tool_call",
            ACTION_UNKNOWN_OUTCOME => "confirmation",
            _ => "input_required",
        };
        let approval = || {
            json!({
                "type": "object",
                "properties": {
                    "approved": {"type": "boolean"},
                    "reason": {"type": "string"},
                    "editedArgs": {"type": "object"},
                },
                "required": ["approved"],
            })
        };
        let schema = asked.response_schema.clone().filter(Value::is_object);
        Self {
            id: asked.id.to_string(),
            reason: reason.into(),
            message: asked.message.clone(),
            tool_call_id: ticket.pending.id.to_string(),
            response_schema: if asked.action == ACTION_PERMISSION { Some(approval()) } else { schema },
            expires_at: asked.expires_at.map(time::rfc3339),
            metadata: json!({
                "action": asked.action,
                "toolName": ticket.pending.name,
                "parameters": asked.parameters,
            }),
        }
    }
}

#[derive(Clone, Debug)]
enum OpenMessage {
    Text(String),
    Reasoning(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgsStage {
    /// Its arguments arrive; whether any came.
    Arriving(bool),
    /// Its arguments are complete.
    Complete,
    /// It has a result.
    Settled,
}

/// Encodes the events of a run as AG-UI events.
///
/// Send every event through [`encode`](Self::encode). Before a `RunFinish` that reports a waiting run, pass
/// the pending questions of the thread to [`expect`](Self::expect), because some may have been asked before
/// this stream started. The stream ends when [`is_finished`](Self::is_finished) returns true; close one that
/// has to end earlier with [`fail`](Self::fail).
#[derive(Clone, Debug)]
pub struct AgUiEncoder {
    thread_id: String,
    run_id: String,
    /// The client's own state.
    client_state: Value,
    is_started: bool,
    is_finished: bool,
    step: Option<String>,
    steps: u64,
    /// Id of the message of the current step.
    message_id: Option<String>,
    open: Option<OpenMessage>,
    /// Number of ids made so far.
    ids: u64,
    calls: BTreeMap<String, ArgsStage>,
    interrupts: Vec<AgUiInterrupt>,
    /// Calls that the client carries out.
    client_calls: Vec<String>,
    usage: Vec<ModelUsage>,
    error: Option<(String, Option<String>)>,
}

impl AgUiEncoder {
    /// An encoder for the run that the client calls by these ids.
    pub fn new(thread_id: impl Into<String>, run_id: impl Into<String>) -> Self {
        Self {
            thread_id: thread_id.into(),
            run_id: run_id.into(),
            client_state: Value::Null,
            is_started: false,
            is_finished: false,
            step: None,
            steps: 0,
            message_id: None,
            open: None,
            ids: 0,
            calls: BTreeMap::new(),
            interrupts: Vec::new(),
            client_calls: Vec::new(),
            usage: Vec::new(),
            error: None,
        }
    }

    /// The same for a client that has a state of its own: it keeps that, and the shared state is added to it.
    #[must_use]
    pub fn with_client_state(self, client_state: Value) -> Self {
        Self { client_state, ..self }
    }

    /// The same for a client that has the results of these calls, because it made them.
    #[must_use]
    pub fn with_results(mut self, calls: impl IntoIterator<Item = String>) -> Self {
        self.calls.extend(calls.into_iter().map(|call| (call, ArgsStage::Settled)));
        self
    }

    /// Returns whether the last event of the stream was returned.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Starts the stream before the first event is known.
    pub fn begin(&mut self) -> Vec<AgUiEvent> {
        let mut out = Vec::new();
        self.start(None, &mut out);
        out
    }

    /// Notes questions that wait, from this thread or those of its subagents.
    pub fn expect(&mut self, questions: &[SuspensionRecord]) {
        for record in questions.iter().filter(|record| record.status == SuspensionStatus::Open) {
            self.ask(record.call_id.as_str(), &record.ticket);
        }
    }

    /// Returns the frames for an event. After the end of a run only the start of another one returns any.
    pub fn encode(&mut self, event: &AgentEvent) -> Vec<AgUiEvent> {
        let mut out = Vec::new();
        if self.is_finished {
            if !matches!(event, AgentEvent::RunStart { .. }) {
                return out;
            }
            let client_state = std::mem::take(&mut self.client_state);
            *self = Self { ids: self.ids, client_state, ..Self::new(&*self.thread_id, &*self.run_id) };
        }
        let parent = match event {
            AgentEvent::RunStart { parent_run_id, .. } => parent_run_id.clone(),
            _ => None,
        };
        self.start(parent, &mut out);
        match event {
            // Encrypted thoughts are of no use to a client: the store keeps them for the provider.
            AgentEvent::RunStart { .. } | AgentEvent::ReasoningEncryptedValue { .. } => {}
            AgentEvent::StepStart { message_id } => {
                self.end_step(&mut out);
                self.steps += 1;
                let step_name = format!("step-{}", self.steps);
                self.step = Some(step_name.clone());
                self.message_id = Some(message_id.clone()).filter(|id| !id.is_empty());
                out.push(AgUiEvent::StepStarted { step_name });
            }
            AgentEvent::StepEnd => self.end_step(&mut out),
            AgentEvent::TextDelta { delta } => self.push_text(delta, &mut out),
            AgentEvent::ReasoningDelta { delta } => self.think(delta, &mut out),
            AgentEvent::ToolCallStart { id, name } => {
                self.close_message(&mut out);
                if !self.calls.contains_key(id) {
                    self.start_call(id, name, &mut out);
                }
            }
            AgentEvent::ToolCallDelta { id, args_delta } => {
                if let Some(stage @ ArgsStage::Arriving(_)) = self.calls.get_mut(id)
                    && !args_delta.is_empty()
                {
                    *stage = ArgsStage::Arriving(true);
                    out.push(AgUiEvent::ToolCallArgs { tool_call_id: id.clone(), delta: args_delta.clone() });
                }
            }
            AgentEvent::ToolCallReady { id, name, arguments } => {
                self.close_message(&mut out);
                self.complete_call(id, name, arguments, &mut out);
            }
            AgentEvent::ToolCallDone { id, result, outcome, .. } => {
                self.close_message(&mut out);
                self.done(id, result, *outcome, &mut out);
            }
            AgentEvent::ToolCallStreamDelta { id, name, delta } => {
                out.push(custom(
                    "tool_call_output",
                    json!({"toolCallId": id, "toolCallName": name, "delta": delta}),
                ));
            }
            AgentEvent::ToolCallResumed { target_id, result } => {
                out.push(custom("tool_call_resumed", json!({"toolCallId": target_id, "result": result})));
            }
            AgentEvent::MessagesSnapshot { messages } => {
                out.push(custom("messages_snapshot", json!(messages)));
            }
            AgentEvent::ActivitySnapshot { message_id, activity_type, content, replace } => {
                out.push(self.activity(message_id, activity_type, content, *replace));
            }
            AgentEvent::ActivityDelta { message_id, activity_type, patch } => {
                out.push(if is_json_patch(patch) {
                    AgUiEvent::ActivityDelta {
                        message_id: format!("{message_id}:{activity_type}"),
                        activity_type: activity_type.clone(),
                        patch: patch.clone(),
                    }
                } else {
                    let value =
                        json!({"messageId": message_id, "activityType": activity_type, "patch": patch});
                    custom("activity_delta", value)
                });
            }
            AgentEvent::InferenceComplete { model, usage, .. } => {
                self.close_message(&mut out);
                if let Some(usage) = usage {
                    ModelUsage::add_to(&mut self.usage, model, usage);
                }
            }
            AgentEvent::StateSnapshot { snapshot } => {
                out.push(AgUiEvent::StateSnapshot { snapshot: self.joined_state(snapshot) });
            }
            // The shared state has no place in a state without members.
            AgentEvent::StateDelta { .. } if !matches!(self.client_state, Value::Null | Value::Object(_)) => {
            }
            AgentEvent::StateDelta { delta } => out.push(if is_json_patch(delta) {
                AgUiEvent::StateDelta { delta: delta.clone() }
            } else {
                custom("state_delta", json!(delta))
            }),
            // `RUN_ERROR` ends the stream, and the run still has to say how it ends.
            AgentEvent::Error { message, code } => {
                self.error = Some((message.clone(), code.clone()));
                out.push(custom("error", json!({"message": message, "code": code})));
            }
            AgentEvent::RunFinish { result, termination, .. } => {
                self.end_step(&mut out);
                self.finish(result.clone(), termination, &mut out);
            }
        }
        out
    }

    /// Ends the stream because the events of the run cannot be followed to its end; nothing when it is over already.
    pub fn fail(&mut self, message: impl Into<String>) -> Vec<AgUiEvent> {
        let mut out = Vec::new();
        if !self.is_finished {
            self.start(None, &mut out);
            self.end_step(&mut out);
            self.finish(None, &TerminationReason::Error(message.into()), &mut out);
        }
        out
    }

    /// The client's own state with the shared one.
    fn joined_state(&self, shared: &Value) -> Value {
        match (&self.client_state, shared) {
            (Value::Null, shared) => shared.clone(),
            (Value::Object(own), Value::Object(shared)) => {
                let mut joined = own.clone();
                joined.extend(shared.clone());
                Value::Object(joined)
            }
            (own, _) => own.clone(),
        }
    }

    fn start(&mut self, parent_run_id: Option<String>, out: &mut Vec<AgUiEvent>) {
        if !std::mem::replace(&mut self.is_started, true) {
            let (thread_id, run_id) = (self.thread_id.clone(), self.run_id.clone());
            out.push(AgUiEvent::RunStarted { thread_id, run_id, parent_run_id });
        }
    }

    fn finish(&mut self, result: Option<Value>, termination: &TerminationReason, out: &mut Vec<AgUiEvent>) {
        self.is_finished = true;
        let usage: Vec<_> = self.usage.iter().map(AgUiUsage::from).collect();
        let interrupts = std::mem::take(&mut self.interrupts);
        let outcome = match termination {
            TerminationReason::Error(message) => {
                let code =
                    self.error.take().filter(|(reported, _)| reported == message).and_then(|(_, code)| code);
                return out.push(AgUiEvent::RunError { message: message.clone(), code, usage });
            }
            TerminationReason::Blocked(message) => {
                let code = Some("blocked".to_owned());
                return out.push(AgUiEvent::RunError { message: message.clone(), code, usage });
            }
            TerminationReason::Cancelled => AgUiOutcome::Cancelled,
            TerminationReason::Suspended if !interrupts.is_empty() => AgUiOutcome::Interrupt { interrupts },
            TerminationReason::Suspended => {
                AgUiOutcome::Success { pending_tool_call_ids: std::mem::take(&mut self.client_calls) }
            }
            TerminationReason::NaturalEnd
            | TerminationReason::BehaviorRequested
            | TerminationReason::Stopped(_) => AgUiOutcome::Success { pending_tool_call_ids: Vec::new() },
        };
        out.push(AgUiEvent::RunFinished {
            thread_id: self.thread_id.clone(),
            run_id: self.run_id.clone(),
            result: result.filter(|result| !result.is_null()),
            outcome,
            usage,
            metadata: json!({"termination": termination}),
        });
    }

    fn end_step(&mut self, out: &mut Vec<AgUiEvent>) {
        self.close_message(out);
        // Without a result a client would take such a call for one that it has to carry out.
        for (id, stage) in &mut self.calls {
            if matches!(stage, ArgsStage::Arriving(_)) {
                *stage = ArgsStage::Settled;
                out.push(AgUiEvent::ToolCallEnd { tool_call_id: id.clone() });
                out.push(result_of(id, "the call did not arrive completely; it did not run".into()));
            }
        }
        if let Some(step_name) = self.step.take() {
            out.push(AgUiEvent::StepFinished { step_name });
        }
        self.message_id = None;
    }

    fn fresh_id(&mut self, kind: &str) -> String {
        self.ids += 1;
        format!("{}:{kind}-{}", self.message_id.as_deref().unwrap_or(&self.run_id), self.ids)
    }

    fn push_text(&mut self, delta: &str, out: &mut Vec<AgUiEvent>) {
        if delta.is_empty() {
            return;
        }
        let open = match self.open.take() {
            Some(OpenMessage::Text(id)) => id,
            other => {
                self.open = other;
                self.close_message(out);
                // A message that thoughts interrupted is opened again.
                let id = match &self.message_id {
                    Some(id) => id.clone(),
                    None => self.fresh_id("text"),
                };
                out.push(AgUiEvent::TextMessageStart { message_id: id.clone(), role: AgUiRole::Assistant });
                id
            }
        };
        out.push(AgUiEvent::TextMessageContent { message_id: open.clone(), delta: delta.to_owned() });
        self.open = Some(OpenMessage::Text(open));
    }

    fn think(&mut self, delta: &str, out: &mut Vec<AgUiEvent>) {
        if delta.is_empty() {
            return;
        }
        let open = match self.open.take() {
            Some(OpenMessage::Reasoning(id)) => id,
            other => {
                self.open = other;
                self.close_message(out);
                let id = self.fresh_id("reasoning");
                out.push(AgUiEvent::ReasoningStart { message_id: id.clone() });
                let role = AgUiRole::Reasoning;
                out.push(AgUiEvent::ReasoningMessageStart { message_id: id.clone(), role });
                id
            }
        };
        out.push(AgUiEvent::ReasoningMessageContent { message_id: open.clone(), delta: delta.to_owned() });
        self.open = Some(OpenMessage::Reasoning(open));
    }

    fn close_message(&mut self, out: &mut Vec<AgUiEvent>) {
        match self.open.take() {
            Some(OpenMessage::Text(message_id)) => out.push(AgUiEvent::TextMessageEnd { message_id }),
            Some(OpenMessage::Reasoning(message_id)) => {
                out.push(AgUiEvent::ReasoningMessageEnd { message_id: message_id.clone() });
                out.push(AgUiEvent::ReasoningEnd { message_id });
            }
            None => {}
        }
    }

    fn start_call(&mut self, id: &str, name: &str, out: &mut Vec<AgUiEvent>) {
        self.calls.insert(id.to_owned(), ArgsStage::Arriving(false));
        out.push(AgUiEvent::ToolCallStart {
            tool_call_id: id.to_owned(),
            tool_call_name: name.to_owned(),
            parent_message_id: self.message_id.clone(),
        });
    }

    fn complete_call(&mut self, id: &str, name: &str, arguments: &Value, out: &mut Vec<AgUiEvent>) {
        if !self.calls.contains_key(id) {
            self.start_call(id, name, out);
        }
        let Some(stage @ ArgsStage::Arriving(_)) = self.calls.get_mut(id) else { return };
        let has_arguments = std::mem::replace(stage, ArgsStage::Complete) == ArgsStage::Arriving(true);
        if !has_arguments {
            let delta = arguments.to_string();
            out.push(AgUiEvent::ToolCallArgs { tool_call_id: id.to_owned(), delta });
        }
        out.push(AgUiEvent::ToolCallEnd { tool_call_id: id.to_owned() });
    }

    fn done(&mut self, id: &str, result: &ToolResult, outcome: ToolCallOutcome, out: &mut Vec<AgUiEvent>) {
        let stage = self.calls.get(id).copied();
        if stage == Some(ArgsStage::Settled) {
            return;
        }
        if let Some(ArgsStage::Arriving(_)) = stage {
            self.complete_call(id, &result.tool_name, &json!({}), out);
        }
        self.interrupts.retain(|waiting| waiting.tool_call_id != id);
        self.client_calls.retain(|waiting| waiting != id);
        if outcome == ToolCallOutcome::Suspended {
            if let Some(ticket) = &result.suspension {
                self.ask(id, ticket);
            }
            return;
        }
        self.calls.insert(id.to_owned(), ArgsStage::Settled);
        out.push(result_of(id, outcome::words(result)));
    }

    /// A question goes to the user, unless the client itself or another agent carries out the call.
    fn ask(&mut self, call: &str, ticket: &SuspendTicket) {
        if ticket.is_served() {
            return;
        }
        if ticket.suspension.action == ACTION_FRONTEND_TOOL {
            if !self.client_calls.iter().any(|waiting| waiting == call) {
                self.client_calls.push(call.to_owned());
            }
            return;
        }
        let interrupt = AgUiInterrupt::of(ticket);
        self.interrupts.retain(|waiting| waiting.id != interrupt.id);
        self.interrupts.push(interrupt);
    }

    fn activity(&mut self, message: &str, kind: &str, content: &Value, replace: Option<bool>) -> AgUiEvent {
        if !content.is_object() {
            let value = json!({"messageId": message, "activityType": kind, "content": content});
            return custom("activity_snapshot", value);
        }
        // A snapshot that does not replace the previous one is a message of its own, and ids must be unique.
        let mut message_id = format!("{message}:{kind}");
        if replace == Some(false) {
            self.ids += 1;
            message_id = format!("{message_id}-{}", self.ids);
        }
        AgUiEvent::ActivitySnapshot {
            message_id,
            activity_type: kind.to_owned(),
            content: content.clone(),
            replace,
        }
    }
}

fn custom(name: &str, value: Value) -> AgUiEvent {
    AgUiEvent::Custom { name: name.to_owned(), value }
}

fn result_of(call: &str, content: String) -> AgUiEvent {
    AgUiEvent::ToolCallResult {
        message_id: result_message_id(call),
        tool_call_id: call.to_owned(),
        content,
        role: AgUiRole::Tool,
    }
}

/// Returns whether a client accepts the operations: a single invalid one makes it drop the whole stream.
fn is_json_patch(operations: &[Value]) -> bool {
    let is_pointer = |operation: &Value, name: &str| {
        operation.get(name).and_then(Value::as_str).is_some_and(|path| {
            (path.is_empty() || path.starts_with('/'))
                && path.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
        })
    };
    operations.iter().all(|operation| {
        is_pointer(operation, "path")
            && match operation.get("op").and_then(Value::as_str) {
                Some("add" | "replace" | "test") => operation.get("value").is_some(),
                Some("remove") => true,
                Some("move" | "copy") => is_pointer(operation, "from"),
                _ => false,
            }
    })
}
