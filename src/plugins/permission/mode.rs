//! What the permission mode of a run makes of a verdict.

use super::evaluate::{AskKind, Decision, Question, SHELL_TOOL, Verdict, edits_inside, evaluate};
use super::rules::{RuleSet, ToolPermissionBehavior as Behavior};
pub use crate::contract::mode::Mode;

/// The tools that plan mode leaves.
const READ_ONLY: &[&str] =
    &["Read", "List", "Glob", "Grep", "TodoWrite", "AskUser", "skill", "load_skill_resource"];

/// Judges a call by the rules, in a mode.
pub fn evaluate_in(rules: &RuleSet, question: &Question<'_>, mode: Mode) -> Verdict {
    let verdict = evaluate(rules, question);
    let Decision::Ask(kind) = verdict.decision else {
        return if mode == Mode::Plan { in_plan(question, verdict) } else { verdict };
    };
    let allow =
        |why: &str| Verdict { decision: Decision::Allow, rule: None, origin: None, why: why.to_owned() };
    match mode {
        Mode::Ask => verdict,
        Mode::Plan => in_plan(question, verdict),
        Mode::AcceptEdits if kind == AskKind::Default && edits_inside(question) => {
            allow("accept-edits mode: an edit inside the workspace")
        }
        Mode::AcceptEdits => verdict,
        Mode::Yolo => match kind {
            AskKind::Default => allow("yolo mode: no rule speaks about it"),
            AskKind::Undecided if !rules.has(Behavior::Deny, SHELL_TOOL) && verdict.rule.is_none() => {
                allow("yolo mode: no deny rule could be broken")
            }
            AskKind::Rule
            | AskKind::Undecided
            | AskKind::Protected
            | AskKind::Unclear
            | AskKind::BrokenRules => verdict,
        },
    }
}

fn in_plan(question: &Question<'_>, verdict: Verdict) -> Verdict {
    if READ_ONLY.contains(&question.tool) || matches!(verdict.decision, Decision::Deny | Decision::Error) {
        return verdict;
    }
    Verdict {
        decision: Decision::Deny,
        rule: None,
        origin: None,
        why: format!(
            "plan mode: {} is not a read-only tool; propose the change instead of making it",
            question.tool
        ),
    }
}
