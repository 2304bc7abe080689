//! The permission modes of a run.

use super::evaluate::{AskKind, Decision, Question, SHELL_TOOL, Verdict, edits_inside, evaluate};
use super::rules::{RuleSet, ToolPermissionBehavior as Behavior};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How much a run may do without a question. No mode undoes a deny or an ask that a rule says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The rules, and nothing else.
    #[default]
    Ask,
    /// Edits inside the workspace need no question.
    AcceptEdits,
    /// Only reading.
    Plan,
    /// What no rule speaks about needs no question.
    Yolo,
}

impl Mode {
    /// All modes, in the order a key cycles through them.
    pub const ALL: [Mode; 4] = [Mode::Ask, Mode::AcceptEdits, Mode::Plan, Mode::Yolo];

    /// The mode after this one.
    #[must_use]
    pub fn next(self) -> Mode {
        let at = Mode::ALL.iter().position(|mode| *mode == self).unwrap_or(0);
        Mode::ALL[(at + 1) % Mode::ALL.len()]
    }

    /// The name in flags and settings.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Ask => "ask",
            Mode::AcceptEdits => "accept-edits",
            Mode::Plan => "plan",
            Mode::Yolo => "yolo",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        Mode::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| format!("`{text}` is not a permission mode (ask, accept-edits, plan or yolo)"))
    }
}

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
