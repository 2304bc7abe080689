//! Runs as events, and arbitrary events, for the tests of all encoders.

use aye_core::contract::event::AgentEvent;
use aye_core::contract::inference::{StopReason, TokenUsage};
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{
    ACTION_ASK_USER, ACTION_FRONTEND_TOOL, ACTION_PERMISSION, PendingToolCall, SuspendTicket, Suspension,
    ToolCallResumeMode,
};
use aye_core::contract::tool::{ToolResult, UserEdit};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use AgentEvent::{
    ActivityDelta, ActivitySnapshot, Error, InferenceComplete, MessagesSnapshot, ReasoningDelta,
    ReasoningEncryptedValue, RunFinish, RunStart, StateDelta, StateSnapshot, StepEnd, StepStart, TextDelta,
    ToolCallDelta, ToolCallDone, ToolCallReady, ToolCallResumed, ToolCallStart, ToolCallStreamDelta,
};

pub(crate) fn run_start() -> AgentEvent {
    RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None }
}

pub(crate) fn run_finish(termination: TerminationReason) -> AgentEvent {
    RunFinish {
        thread_id: "t".into(),
        run_id: "r".into(),
        result: Some(json!({"response": "Hi"})),
        termination,
    }
}

pub(crate) fn step_start(id: &str) -> AgentEvent {
    StepStart { message_id: id.into() }
}

pub(crate) fn text(delta: &str) -> AgentEvent {
    TextDelta { delta: delta.into() }
}

pub(crate) fn thought(delta: &str) -> AgentEvent {
    ReasoningDelta { delta: delta.into() }
}

pub(crate) fn complete(stop_reason: StopReason) -> AgentEvent {
    let usage = TokenUsage { prompt_tokens: Some(3), ..TokenUsage::default() };
    InferenceComplete {
        model: "m".into(),
        usage: Some(usage),
        duration_ms: 5,
        stop_reason: Some(stop_reason),
    }
}

pub(crate) fn done(id: &str, result: ToolResult, outcome: ToolCallOutcome) -> AgentEvent {
    ToolCallDone { id: id.into(), message_id: "m1".into(), result, outcome }
}

/// A call of `Bash` with its arguments in two deltas.
pub(crate) fn call(id: &str) -> Vec<AgentEvent> {
    vec![
        ToolCallStart { id: id.into(), name: "Bash".into() },
        ToolCallDelta { id: id.into(), args_delta: "{\"command\":".into() },
        ToolCallDelta { id: id.into(), args_delta: "\"ls\"}".into() },
        ToolCallReady { id: id.into(), name: "Bash".into(), arguments: json!({"command": "ls"}) },
    ]
}

pub(crate) fn ticket(id: &str, call: &str, action: &str) -> SuspendTicket {
    SuspendTicket {
        suspension: Suspension {
            id: id.into(),
            action: action.into(),
            message: "Run ls?".into(),
            parameters: json!({"why": "a rule asks"}),
            response_schema: None,
            expires_at: None,
        },
        pending: PendingToolCall {
            id: call.into(),
            name: "Bash".into(),
            arguments: json!({"command": "ls"}),
        },
        resume_mode: ToolCallResumeMode::ReplayToolCall,
    }
}

pub(crate) fn question(id: &str, call: &str, action: &str) -> SuspensionRecord {
    SuspensionRecord {
        id: id.into(),
        thread_id: "t".into(),
        run_id: "r".into(),
        call_id: call.into(),
        ticket: ticket(id, call, action),
        status: SuspensionStatus::Open,
        created_at: 1,
        decision: None,
        decided_by: None,
    }
}

pub(crate) fn asks(id: &str, call: &str, action: &str) -> AgentEvent {
    let result = ToolResult::suspended_with("Bash", "Run ls?", ticket(id, call, action));
    done(call, result, ToolCallOutcome::Suspended)
}

/// The result of a call that the user denied.
pub(crate) fn declined() -> ToolResult {
    let text = "The user denied this call. It did not run. Reason: not now";
    let mut result = ToolResult::error("Bash", text);
    result.details = Some(json!({"code": "declined", "shown": "not now"}));
    result
}

/// Thoughts, text, one call, its result, then the final answer.
pub(crate) fn tool_run() -> Vec<AgentEvent> {
    let mut events = vec![run_start(), step_start("m1"), thought("hm"), text("I look.")];
    events.extend(call("c1"));
    events.extend([
        complete(StopReason::ToolUse),
        ToolCallStreamDelta { id: "c1".into(), name: "Bash".into(), delta: "a.txt\n".into() },
        done("c1", ToolResult::text("Bash", "a.txt"), ToolCallOutcome::Succeeded),
        StepEnd,
        step_start("m2"),
        text("One file."),
        complete(StopReason::EndTurn),
        StepEnd,
        run_finish(TerminationReason::NaturalEnd),
    ]);
    events
}

/// A run up to a pending question.
pub(crate) fn question_run() -> Vec<AgentEvent> {
    let mut events = vec![run_start(), step_start("m1")];
    events.extend(call("c1"));
    events.extend([
        complete(StopReason::ToolUse),
        asks("s1", "c1", ACTION_PERMISSION),
        StepEnd,
        run_finish(TerminationReason::Suspended),
    ]);
    events
}

/// The rest of that run, after an approval.
pub(crate) fn resumed_run() -> Vec<AgentEvent> {
    vec![
        run_start(),
        ToolCallResumed { target_id: "c1".into(), result: Value::Null },
        done("c1", ToolResult::text("Bash", "a.txt"), ToolCallOutcome::Succeeded),
        StepEnd,
        step_start("m2"),
        text("One file."),
        complete(StopReason::EndTurn),
        StepEnd,
        run_finish(TerminationReason::NaturalEnd),
    ]
}

/// Any event, with few distinct ids so that they collide.
pub(crate) fn any_event() -> impl Strategy<Value = AgentEvent> {
    let id = || prop::sample::select(vec!["c1", "c2", "c3"]).prop_map(str::to_owned);
    let message = || prop::sample::select(vec!["m1", "m2"]).prop_map(str::to_owned);
    let name = || prop::sample::select(vec!["Bash", "Read"]).prop_map(str::to_owned);
    let delta = || prop::sample::select(vec!["", "a", "b"]).prop_map(str::to_owned);
    let stop = prop::sample::select(vec![
        StopReason::EndTurn,
        StopReason::MaxTokens,
        StopReason::ToolUse,
        StopReason::StopSequence,
        StopReason::Refusal,
        StopReason::ContentFilter,
        StopReason::Other,
    ]);
    let outcome = prop::sample::select(vec![
        ToolCallOutcome::Succeeded,
        ToolCallOutcome::Failed,
        ToolCallOutcome::Suspended,
        ToolCallOutcome::Cancelled,
    ]);
    let result = (0..6_u8, id()).prop_map(|(kind, id)| match kind {
        0 => ToolResult::text("Bash", "ok"),
        1 => ToolResult::error("Bash", "no"),
        2 => declined(),
        3 => ToolResult::suspended_with("Bash", "?", ticket("s1", &id, ACTION_PERMISSION)),
        4 => ToolResult::suspended_with("Bash", "?", ticket("s2", &id, ACTION_FRONTEND_TOOL)),
        _ => {
            let mut result = ToolResult::suspended_with("Bash", "?", ticket("s3", &id, ACTION_ASK_USER));
            let arguments = Some(json!({"command": "pwd"}));
            result.touched = Some(Box::new(UserEdit { arguments, ..UserEdit::default() }));
            result
        }
    });
    let termination = prop::sample::select(vec![
        TerminationReason::NaturalEnd,
        TerminationReason::BehaviorRequested,
        TerminationReason::stopped("length", "cut off"),
        TerminationReason::stopped("max_rounds", "3 rounds"),
        TerminationReason::Cancelled,
        TerminationReason::Blocked("no".into()),
        TerminationReason::Suspended,
        TerminationReason::Error("broken".into()),
    ]);
    prop_oneof![
        1 => Just(run_start()),
        1 => termination.prop_map(run_finish),
        3 => message().prop_map(|message_id| StepStart { message_id }),
        3 => Just(StepEnd),
        3 => delta().prop_map(|delta| TextDelta { delta }),
        2 => delta().prop_map(|delta| ReasoningDelta { delta }),
        1 => Just(ReasoningEncryptedValue { encrypted_value: "secret".into() }),
        3 => (id(), name()).prop_map(|(id, name)| ToolCallStart { id, name }),
        2 => (id(), delta()).prop_map(|(id, args_delta)| ToolCallDelta { id, args_delta }),
        3 => (id(), name()).prop_map(|(id, name)| ToolCallReady { id, name, arguments: json!({}) }),
        3 => (id(), result, outcome).prop_map(|(id, result, outcome)| done(&id, result, outcome)),
        1 => (id(), name(), delta()).prop_map(|(id, name, delta)| ToolCallStreamDelta { id, name, delta }),
        1 => id().prop_map(|target_id| ToolCallResumed { target_id, result: Value::Null }),
        1 => Just(MessagesSnapshot { messages: vec![json!({"role": "user"})] }),
        1 => (message(), option::of(any::<bool>())).prop_map(|(message_id, replace)| ActivitySnapshot {
            message_id,
            activity_type: "notice".into(),
            content: json!({"text": "hi"}),
            replace,
        }),
        1 => message().prop_map(|message_id| ActivityDelta {
            message_id,
            activity_type: "notice".into(),
            patch: vec![json!({"op": "remove", "path": "/text"})],
        }),
        2 => stop.prop_map(complete),
        1 => Just(StateSnapshot { snapshot: json!({"a": 1}) }),
        1 => Just(StateDelta { delta: vec![json!({"op": "remove", "path": "/a"})] }),
        1 => Just(Error { message: "odd".into(), code: Some("plugin".into()) }),
    ]
}

/// Any sequence of events.
pub(crate) fn any_events() -> impl Strategy<Value = Vec<AgentEvent>> {
    vec(any_event(), 0..60)
}
