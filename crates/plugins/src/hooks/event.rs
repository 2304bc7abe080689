//! The input of a command: one JSON object, in a versioned format.

use serde_json::{Value, json};

use super::config::{HookSpec, phase_name};
use super::foreign;
use aye_core::contract::message::Role;
use aye_core::contract::suspension::ResumeDecisionAction;
use aye_core::phase::{PhaseContext, StopRequest};
use aye_core::state::Phase;

/// The version of the event's form. It goes up when something is taken away or changes its meaning; new members may
/// come without.
pub const EVENT_VERSION: u32 = 1;

/// The moment, for a command. `cwd` is the folder that the run works in.
pub fn event(hook: &HookSpec, ctx: &PhaseContext, cwd: &str) -> Value {
    let mut event = json!({
        "version": EVENT_VERSION,
        "hook": hook.name,
        "phase": phase_name(ctx.phase),
        "thread_id": ctx.run_identity.thread_id,
        "run_id": ctx.run_identity.run_id,
        "agent": ctx.agent_spec.id,
        "cwd": cwd,
        "step": ctx.progress.steps,
    });
    // Commands written for Claude Code read these names.
    if let Some(name) = foreign::event_name(ctx.phase) {
        event["hook_event_name"] = json!(name);
        event["session_id"] = json!(ctx.run_identity.thread_id);
    }
    if let Some(info) = &ctx.tool {
        event["call"] = json!({
            "id": info.call.id,
            "name": info.call.name,
            "arguments": info.call.arguments,
        });
        event["tool_name"] = json!(info.call.name);
        event["tool_input"] = json!(info.call.arguments);
        event["tool_use_id"] = json!(info.call.id);
    }
    match ctx.phase {
        Phase::BeforeToolExecute => {
            let yes = |info: &aye_core::phase::ToolCallInfo| {
                info.resume.as_ref().is_some_and(|resume| resume.action == ResumeDecisionAction::Resume)
            };
            event["answered"] = json!(ctx.tool.as_ref().is_some_and(yes));
        }
        Phase::AfterToolExecute => {
            if let Some(result) = &ctx.tool_result {
                event["result"] = json!({ "ok": result.is_success(), "text": result.model_text() });
                event["tool_response"] = event["result"].clone();
            }
        }
        Phase::RunStart => {
            let asked = ctx.messages.iter().rev().find(|message| message.role == Role::User);
            event["prompt"] = json!(asked.map(|message| message.text()).unwrap_or_default());
        }
        Phase::AfterInference | Phase::StepEnd => {
            if let Some(response) = &ctx.response {
                let calls: Vec<Value> = response
                    .tool_calls
                    .iter()
                    .map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments}))
                    .collect();
                event["response"] = json!({ "text": response.text(), "calls": calls });
            }
        }
        Phase::RunEnd => {
            if let Some(reason) = ctx.state::<StopRequest>().and_then(Option::as_ref) {
                event["stopped"] = json!(reason);
            }
        }
        Phase::StepStart | Phase::BeforeInference => {}
    }
    event
}
