//! What the permission mode of a run makes of a verdict.

use super::evaluate::{AskKind, Decision, Prepared, Question, SHELL_TOOL, Verdict, edits_inside, evaluate};
use super::rules::{RuleSet, ToolPermissionBehavior as Behavior};
pub use crate::contract::mode::Mode;

/// The tools that plan mode leaves.
const READ_ONLY: &[&str] =
    &["Read", "List", "Glob", "Grep", "TodoWrite", "AskUser", "skill", "load_skill_resource"];

/// True for the tools that only look, or only talk with the person.
pub(super) fn is_read_only(tool: &str) -> bool {
    READ_ONLY.contains(&tool)
}

/// Judges a call by the rules, in a mode.
pub fn evaluate_in(rules: &RuleSet, question: &Question<'_>, mode: Mode) -> Verdict {
    bend(rules, question, mode, evaluate(rules, question))
}

/// Judges a call that was looked at by the rules, in a mode.
pub(super) fn judge_in(rules: &RuleSet, call: &Prepared<'_>, mode: Mode) -> Verdict {
    let verdict = bend(rules, &call.question, mode, call.verdict(rules));
    if verdict.grants.iter().all(|grant| !grant.is_limited) || mode == Mode::Ask {
        return verdict;
    }
    // A use that is counted is not taken for what the mode allows anyway.
    let uncounted = rules.without_limited();
    let without = bend(&uncounted, &call.question, mode, call.verdict(&uncounted));
    if without.decision == Decision::Allow { without } else { verdict }
}

fn bend(rules: &RuleSet, question: &Question<'_>, mode: Mode, verdict: Verdict) -> Verdict {
    let Decision::Ask(kind) = verdict.decision else {
        return if mode == Mode::Plan { in_plan(rules, question, verdict) } else { verdict };
    };
    let allow = |why: &str| Verdict::new(Decision::Allow, why);
    match mode {
        Mode::Ask => verdict,
        Mode::Plan => in_plan(rules, question, verdict),
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

/// Plan mode only reads: the tools that do nothing else, and command lines whose every part a shipped rule allows.
/// Rules of the user's own may allow more than reading, so they count only against a command.
fn in_plan(rules: &RuleSet, question: &Question<'_>, verdict: Verdict) -> Verdict {
    if is_read_only(question.tool) || matches!(verdict.decision, Decision::Deny | Decision::Error) {
        return verdict;
    }
    let mut why = format!("{} is not a read-only tool", question.tool);
    if question.tool == SHELL_TOOL {
        let reading = evaluate(&rules.with_shipped_allows(), question);
        if reading.decision == Decision::Allow {
            return reading;
        }
        why = format!("this command is not known to only read ({})", reading.why);
    }
    Verdict::new(
        Decision::Deny,
        format!("plan mode only reads, and {why}; propose the change instead of making it"),
    )
}
