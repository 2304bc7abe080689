use serde_json::json;

use super::*;
use crate::contract::context_message::ContextMessage;
use crate::contract::inference::InferenceOverride;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::message::ToolCall;
use crate::contract::suspension::{PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode};
use crate::contract::tool::ToolResult;
use crate::contract::tool_intercept::{ToolInterceptAction, ToolInterceptPayload};

/// Submits a command as a tool would.
async fn submit(bench: &Bench, make: impl FnOnce(&mut StateCommand)) {
    let mut command = StateCommand::new();
    make(&mut command);
    bench.runtime.submit_command(&bench.env, command).await.unwrap();
}

/// StepStart and BeforeInference of the step after `steps` inferences.
async fn step(bench: &Bench, steps: u32) -> InferenceShape {
    let ctx = PhaseContext::test_default()
        .with_progress(RunProgress { steps, ..RunProgress::default() })
        .with_phase(Phase::StepStart);
    bench.run(ctx.clone()).await.unwrap();
    bench.run(ctx.with_phase(Phase::BeforeInference)).await.unwrap().inference
}

fn keys(shape: &InferenceShape) -> Vec<&str> {
    shape.context_messages.iter().map(|message| message.content.as_str()).collect()
}

#[tokio::test]
async fn a_message_lasts_one_step_unless_persistent() {
    let bench = Bench::new([]);
    submit(&bench, |c| {
        c.schedule_action::<AddContextMessage>(ContextMessage::system("once", "once")).unwrap();
        c.schedule_action::<AddContextMessage>(ContextMessage::system_persistent("kept", "kept")).unwrap();
    })
    .await;
    assert_eq!(keys(&step(&bench, 0).await), ["kept", "once"]);
    assert_eq!(keys(&step(&bench, 1).await), ["kept"]);
    submit(&bench, |c| {
        c.schedule_action::<AddContextMessage>(ContextMessage::system_persistent("kept", "newer")).unwrap();
        c.schedule_action::<AddContextMessage>(ContextMessage::system_persistent("last", "last")).unwrap();
    })
    .await;
    assert_eq!(keys(&step(&bench, 2).await), ["newer", "last"]);
    submit(&bench, |c| {
        c.schedule_action::<AddContextMessage>(ContextMessage::system("kept", "instead")).unwrap();
    })
    .await;
    assert_eq!(keys(&step(&bench, 3).await), ["instead", "last"]);
    assert_eq!(keys(&step(&bench, 4).await), ["newer", "last"]);
}

#[tokio::test]
async fn a_throttled_message_pauses_for_its_number_of_steps() {
    let nag = part("nag", |r| {
        r.register_phase_hook(
            "nag",
            Phase::BeforeInference,
            Hook(|_: &PhaseContext| {
                let mut command = StateCommand::new();
                command.schedule_action::<AddContextMessage>(ContextMessage::system_throttled(
                    "nag", "nag", 2,
                ))?;
                Ok(command)
            }),
        )
    });
    let bench = Bench::new([nag]);
    let mut shown = Vec::new();
    for steps in 0..7 {
        shown.push(!step(&bench, steps).await.context_messages.is_empty());
    }
    assert_eq!(shown, [true, false, false, true, false, false, true]);
    // Running the step again, as after a restart, yields this step's message again.
    assert!(!step(&bench, 6).await.context_messages.is_empty());
}

#[tokio::test]
async fn overrides_and_tool_filters_last_one_step() {
    let bench = Bench::new([]);
    submit(&bench, |c| {
        let cold = InferenceOverride { temperature: Some(0.0), top_p: Some(0.5), ..Default::default() };
        let warm = InferenceOverride { temperature: Some(1.0), max_tokens: Some(9), ..Default::default() };
        c.schedule_action::<SetInferenceOverride>(cold).unwrap();
        c.schedule_action::<SetInferenceOverride>(warm).unwrap();
        c.schedule_action::<IncludeOnlyTools>(vec!["a".into(), "b".into()]).unwrap();
        c.schedule_action::<IncludeOnlyTools>(vec!["c".into()]).unwrap();
        c.schedule_action::<ExcludeTool>("b".into()).unwrap();
    })
    .await;
    let shape = step(&bench, 0).await;
    let merged = InferenceOverride {
        temperature: Some(1.0),
        top_p: Some(0.5),
        max_tokens: Some(9),
        ..Default::default()
    };
    assert_eq!(shape.overrides, merged);
    let offered: Vec<_> = ["a", "b", "c", "d"].into_iter().filter(|id| shape.offers(id)).collect();
    assert_eq!(offered, ["a", "c"]);
    assert_eq!(inference_shape(&bench.runtime.store().snapshot()), shape, "readable after the phase");
    let next = step(&bench, 1).await;
    assert_eq!(next, InferenceShape::default());
    assert!(next.offers("d"));
}

#[tokio::test]
async fn an_empty_only_list_offers_no_tools() {
    let bench = Bench::new([]);
    submit(&bench, |c| c.schedule_action::<IncludeOnlyTools>(Vec::new()).unwrap()).await;
    assert!(!step(&bench, 0).await.offers("a"));
}

fn block(reason: &str) -> ToolInterceptPayload {
    ToolInterceptPayload::Block { reason: reason.into() }
}

fn suspend(call: &str) -> ToolInterceptPayload {
    ToolInterceptPayload::Suspend(SuspendTicket {
        suspension: Suspension {
            id: format!("perm_{call}").into(),
            action: "tool:PermissionConfirm".into(),
            message: "may it?".into(),
            parameters: json!({}),
            response_schema: None,
            expires_at: None,
        },
        pending: PendingToolCall { id: call.into(), name: "Bash".into(), arguments: json!({}) },
        resume_mode: ToolCallResumeMode::ReplayToolCall,
    })
}

fn set(text: &str) -> ToolInterceptPayload {
    ToolInterceptPayload::SetResult(ToolResult::text("Bash", text))
}

fn gate_of(call: &str) -> PhaseContext {
    PhaseContext::test_default()
        .with_phase(Phase::BeforeToolExecute)
        .with_tool(ToolCallInfo::new(ToolCall::new(call, "Bash", json!({})), None))
}

async fn intercept(payloads: Vec<ToolInterceptPayload>) -> Option<ToolInterceptPayload> {
    let gate = part("gate", move |r| {
        let payloads = payloads.clone();
        let hook = Hook(move |_: &PhaseContext| {
            let mut command = StateCommand::new();
            for payload in &payloads {
                command.schedule_action::<ToolInterceptAction>(payload.clone())?;
            }
            Ok(command)
        });
        r.register_phase_hook("gate", Phase::BeforeToolExecute, hook)
    });
    Bench::new([gate]).run(gate_of("c1")).await.unwrap().intercept
}

#[tokio::test]
async fn block_beats_suspend_beats_result_and_the_first_of_equals_wins() {
    assert_eq!(intercept(vec![]).await, None);
    assert_eq!(intercept(vec![set("a"), set("b")]).await, Some(set("a")));
    assert_eq!(intercept(vec![set("a"), suspend("c1")]).await, Some(suspend("c1")));
    assert_eq!(intercept(vec![suspend("c1"), set("a")]).await, Some(suspend("c1")));
    assert_eq!(intercept(vec![suspend("c1"), block("x"), block("y"), set("a")]).await, Some(block("x")));
    // A deny asks no question.
    let deny = |text: &str| ToolInterceptPayload::Deny(ToolResult::error("Bash", text));
    assert_eq!(intercept(vec![suspend("c1"), deny("x"), set("a"), deny("y")]).await, Some(deny("x")));
    assert_eq!(intercept(vec![deny("x"), block("y")]).await, Some(block("y")));
    // A later hook extends a question instead of replacing it.
    let ToolInterceptPayload::Suspend(mut more) = suspend("c1") else { unreachable!() };
    more.suspension.message.push_str(" and how?");
    let more = ToolInterceptPayload::Suspend(more);
    assert_eq!(intercept(vec![suspend("c1"), more.clone()]).await, Some(more));
    assert_eq!(intercept(vec![suspend("c1"), suspend("c2")]).await, Some(suspend("c1")));
}

#[tokio::test]
async fn concurrently_gated_calls_get_their_own_intercepts() {
    let gate = part("gate", |r| {
        let hook = Hook(|ctx: &PhaseContext| {
            let mut command = StateCommand::new();
            // Emitting yields, so the other calls' phases proceed between this commit and its actions.
            command.emit::<Announced>("gated".into())?;
            let call = &ctx.tool.as_ref().unwrap().call.id;
            if call != "free" {
                command.schedule_action::<ToolInterceptAction>(suspend(call))?;
            }
            Ok(command)
        });
        r.register_phase_hook("gate", Phase::BeforeToolExecute, hook)
    });
    let bench = Bench::new([gate]);
    let calls = ["c1", "free", "c2"];
    let reports = futures::future::join_all(calls.map(|call| bench.run(gate_of(call)))).await;
    let intercepts: Vec<_> = reports.into_iter().map(|report| report.unwrap().intercept).collect();
    assert_eq!(intercepts, [Some(suspend("c1")), None, Some(suspend("c2"))]);
}

#[tokio::test]
async fn an_unreadable_intercept_does_not_let_the_call_pass() {
    let bench = Bench::new([]);
    let mut command = StateCommand::new();
    command.schedule_action::<ToolInterceptAction>(block("x")).unwrap();
    command.scheduled_actions[0].payload = json!({"type": "from the future"});
    bench.runtime.submit_command(&bench.env, command).await.unwrap();
    let outcome = bench.run(gate_of("c1")).await;
    assert!(matches!(outcome, Err(StateError::KeyDecode { .. })), "{outcome:?}");
}

#[tokio::test]
async fn the_first_stop_request_wins_and_is_visible_afterwards() {
    let bench = Bench::new([]);
    assert_eq!(bench.phase(Phase::StepEnd).await.unwrap().stop, None);
    let first = TerminationReason::stopped("first", "because");
    submit(&bench, |c| {
        c.update::<StopRequest>(first.clone());
        c.update::<StopRequest>(TerminationReason::BehaviorRequested);
    })
    .await;
    submit(&bench, |c| c.update::<StopRequest>(TerminationReason::Cancelled)).await;
    assert_eq!(bench.phase(Phase::AfterToolExecute).await.unwrap().stop, Some(first.clone()));
    assert_eq!(bench.phase(Phase::StepEnd).await.unwrap().stop, Some(first));
    bench.runtime.store().clear_run_scope();
    assert_eq!(bench.phase(Phase::StepEnd).await.unwrap().stop, None);
}

#[tokio::test]
async fn deferred_actions_survive_a_restart() {
    let bench = Bench::new([]);
    submit(&bench, |c| {
        c.schedule_action::<AddContextMessage>(ContextMessage::system("hint", "hint")).unwrap();
        c.update::<StopRequest>(TerminationReason::BehaviorRequested);
    })
    .await;
    let saved = bench.runtime.store().export(None).unwrap();
    let saved = serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
    let bench = Bench::new([]);
    bench.runtime.store().restore(saved, crate::state::UnknownKeyPolicy::Error).unwrap();
    assert_eq!(bench.phase(Phase::RunStart).await.unwrap().stop, Some(TerminationReason::BehaviorRequested));
    assert_eq!(keys(&step(&bench, 0).await), ["hint"]);
}
