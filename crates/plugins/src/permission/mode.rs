//! The effect of a run's permission mode on a verdict.

use super::evaluate::{
    AskKind, CallRequest, CallSubject, PreparedCall, SHELL_TOOL, Verdict, VerdictKind, edits_inside,
    runs_program,
};
use super::opening::wants_out;
use super::rules::{RuleSet, ToolPermissionBehavior as Behavior};
use super::shell;
use aye_core::contract::judgement::Profile;
pub use aye_core::contract::mode::Mode;

/// The tools that plan mode leaves.
const READ_ONLY: &[&str] = &[
    "Read",
    "List",
    "Glob",
    "Grep",
    "BashOutput",
    "KillShell",
    "TodoWrite",
    "AskUser",
    "skill",
    "load_skill_resource",
];

/// Returns true for the tools that only read, or only communicate with the user.
pub(super) fn is_read_only(tool: &str) -> bool {
    READ_ONLY.contains(&tool)
}

/// Judges a call by the rules, in a mode.
pub fn evaluate_in(rules: &RuleSet, question: &CallRequest<'_>, mode: Mode) -> Verdict {
    match PreparedCall::of(question) {
        Ok(call) => apply_mode(rules, &call, mode, by_rules(rules, &call, mode)),
        Err(why) => Verdict::error(&why.to_string()),
    }
}

/// Judges an analysed call by the rules, in a mode.
pub(super) fn judge_in(rules: &RuleSet, call: &PreparedCall<'_>, mode: Mode) -> Verdict {
    let verdict = apply_mode(rules, call, mode, by_rules(rules, call, mode));
    if verdict.grants.iter().all(|grant| !grant.is_limited) || mode == Mode::Ask {
        return verdict;
    }
    // A use that is counted is not taken for what the mode allows anyway.
    let uncounted = rules.without_limited();
    let without = apply_mode(&uncounted, call, mode, by_rules(&uncounted, call, mode));
    if without.decision == VerdictKind::Allow { without } else { verdict }
}

fn by_rules(rules: &RuleSet, call: &PreparedCall<'_>, mode: Mode) -> Verdict {
    if mode == Mode::Yolo { call.verdict_outside(rules) } else { call.verdict(rules) }
}

fn apply_mode(rules: &RuleSet, call: &PreparedCall<'_>, mode: Mode, verdict: Verdict) -> Verdict {
    let question = &call.question;
    let VerdictKind::Ask(kind) = verdict.decision else {
        return match mode {
            Mode::Plan => in_plan(rules, call, verdict),
            // A call that yolo mode lets run has all rights of the user.
            Mode::Yolo => Verdict { profile: verdict.profile.map(|_| Profile::Outside), ..verdict },
            Mode::Ask | Mode::AcceptEdits | Mode::Auto => verdict,
        };
    };
    let profile = runs_program(question.tool).then_some(Profile::Outside);
    let allow = |why: &str| Verdict { profile, ..Verdict::new(VerdictKind::Allow, why) };
    match mode {
        Mode::Ask => verdict,
        Mode::Plan => in_plan(rules, call, verdict),
        Mode::AcceptEdits | Mode::Auto if kind == AskKind::Default && edits_inside(question) => {
            allow(&format!("{mode} mode: an edit inside the workspace"))
        }
        // A command that is to leave the sandbox always asks, whatever else is known of it.
        Mode::Auto if !wants_out(question) && call.is_open(kind, &verdict, rules) => {
            Verdict { profile: Some(Profile::Workspace), ..allow("auto mode: it runs in the sandbox") }
        }
        Mode::AcceptEdits | Mode::Auto => verdict,
        Mode::Yolo => match kind {
            AskKind::Default | AskKind::Outside => match call.reaches(rules, Profile::Outside) {
                // Only a rule keeps a line from running here; too many files to check do not.
                Some(asked) if asked.rule.is_some() => asked,
                Some(_) | None => allow("yolo mode: no rule covers it"),
            },
            AskKind::Undecided if !rules.has(Behavior::Deny, SHELL_TOOL) && verdict.rule.is_none() => {
                allow("yolo mode: no deny rule can match")
            }
            AskKind::Rule
            | AskKind::Undecided
            | AskKind::Protected
            | AskKind::Unclear
            | AskKind::BrokenRules => verdict,
        },
    }
}

impl PreparedCall<'_> {
    /// Returns whether mode `auto` covers this call: a skill's script, or a command line that was understood
    /// and that no rule asks about or may deny.
    fn is_open(&self, kind: AskKind, verdict: &Verdict, rules: &RuleSet) -> bool {
        let CallSubject::Shell(analysis) = &self.subject else {
            return kind == AskKind::Default && runs_program(self.question.tool);
        };
        let is_open = match kind {
            AskKind::Default => true,
            // The shipped deny rules cover commands that destroy a machine, and the sandbox prevents that as
            // well as the rules do.
            AskKind::Undecided => verdict.rule.is_none() && !rules.restricts_own(SHELL_TOOL),
            AskKind::Rule
            | AskKind::Protected
            | AskKind::Unclear
            | AskKind::BrokenRules
            | AskKind::Outside => false,
        };
        is_open && analysis.unreadable.is_none() && self.reaches(rules, Profile::Workspace).is_none()
    }
}

/// Plan mode only reads: the tools that do nothing else, and command lines whose every part a shipped rule allows.
/// Rules of the user's own may allow more than reading, so they count only against a command.
fn in_plan(rules: &RuleSet, call: &PreparedCall<'_>, verdict: Verdict) -> Verdict {
    let question = &call.question;
    if is_read_only(question.tool) || matches!(verdict.decision, VerdictKind::Deny | VerdictKind::Error) {
        return verdict;
    }
    let mut why = format!("{} is not a read-only tool", question.tool);
    if question.tool == SHELL_TOOL {
        let reading = call.verdict(&rules.with_shipped_allows());
        if reading.decision == VerdictKind::Allow {
            return reading;
        }
        // No rule of the user makes a command read-only.
        let unread = shell::without_remedy(&reading.why);
        why = format!("this command is not known to be read-only ({unread})");
    }
    Verdict::new(VerdictKind::Deny, format!("plan mode is read-only, and {why}"))
}
