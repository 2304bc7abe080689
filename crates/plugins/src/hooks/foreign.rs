//! Answers in the form of Claude Code's hooks, for commands that were written for it.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::{Context, HookAsk, HookFailure, HookResponse, refusal};
use aye_core::contract::context_message::ContextTarget;
use aye_core::state::Phase;

/// The members that only the foreign form has.
const MEMBERS: [&str; 7] =
    ["hookSpecificOutput", "decision", "reason", "continue", "stopReason", "suppressOutput", "systemMessage"];

/// The whole answer. A member that is not here could change a call in a way that would be ignored: it is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct ForeignAnswer {
    hook_specific_output: Option<Specific>,
    decision: Option<Decision>,
    reason: Option<String>,
    r#continue: Option<bool>,
    stop_reason: Option<String>,
    /// Hides the output in another program's transcript; nothing shows it here.
    #[serde(rename = "suppressOutput")]
    _suppress_output: Option<bool>,
    system_message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Specific {
    #[serde(rename = "hookEventName")]
    _hook_event_name: Option<String>,
    permission_decision: Option<Permission>,
    permission_decision_reason: Option<String>,
    additional_context: Option<String>,
    updated_input: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Permission {
    Allow,
    Deny,
    Ask,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Approve,
    Block,
}

/// The name that Claude Code has for a phase, if it has one.
pub(super) fn event_name(phase: Phase) -> Option<&'static str> {
    match phase {
        Phase::RunStart => Some("UserPromptSubmit"),
        Phase::BeforeToolExecute => Some("PreToolUse"),
        Phase::AfterToolExecute => Some("PostToolUse"),
        Phase::RunEnd => Some("Stop"),
        Phase::StepStart | Phase::BeforeInference | Phase::AfterInference | Phase::StepEnd => None,
    }
}

/// Returns whether an answer is in this form.
pub(super) fn is_foreign(answer: &Value) -> bool {
    MEMBERS.iter().any(|member| answer.get(member).is_some())
}

/// Returns an answer in aye's own form. An `allow` is no opinion: a hook can only make things stricter.
///
/// # Errors
/// A member that is unknown, or that cannot have its effect here.
pub(super) fn read(phase: Phase, answer: Value) -> Result<HookResponse, HookFailure> {
    let answer = ForeignAnswer::deserialize(answer)?;
    let specific = answer.hook_specific_output.unwrap_or_default();
    let no_effect = |part| Err(HookFailure::NoEffect { part, phase });
    if specific.updated_input.is_some() {
        return no_effect("updatedInput");
    }
    let words = |reason: Option<String>| {
        let reason = reason.filter(|reason| !reason.trim().is_empty());
        reason.unwrap_or_else(|| "no reason given".to_owned())
    };
    let mut response = HookResponse::default();
    match (specific.permission_decision, phase) {
        (None, _) => {}
        (Some(_), phase) if phase != Phase::BeforeToolExecute => return no_effect("permissionDecision"),
        (Some(Permission::Allow), _) => {}
        (Some(Permission::Deny), _) => response.deny = Some(words(specific.permission_decision_reason)),
        (Some(Permission::Ask), _) => {
            response.ask = Some(HookAsk { question: words(specific.permission_decision_reason) });
        }
    }
    match answer.decision {
        None | Some(Decision::Approve) => {}
        // A run that has ended cannot be made to continue.
        Some(Decision::Block) if phase == Phase::RunEnd => return no_effect("decision"),
        Some(Decision::Block) => {
            let refused = refusal(phase, words(answer.reason));
            response.deny = response.deny.or(refused.deny);
            response.block = refused.block;
            response.context = refused.context;
        }
    }
    if let Some(content) = specific.additional_context.filter(|text| !text.trim().is_empty()) {
        response.context.push(Context { content, target: ContextTarget::Conversation, persistent: false });
    }
    if answer.r#continue == Some(false) && phase != Phase::RunEnd {
        response.stop = Some(words(answer.stop_reason));
    }
    response.notice = answer.system_message;
    Ok(response)
}
