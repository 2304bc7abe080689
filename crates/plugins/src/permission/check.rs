//! The protocol of `aye permissions check`: one JSON question a line in, one JSON verdict a line out.

use super::evaluate::{CallRequest, EnforcedProfiles, PreparedCall, Verdict};
use super::git_changes::{AskGit, with_protected};
use super::mode::{Mode, judge_in};
use super::rules::{Layer, RuleSet, ToolPermissionBehavior as Behavior};
use aye_core::contract::address::DomainPattern;
use aye_core::contract::judgement::Profile;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

/// The context in which the calls of a check are judged.
#[derive(Clone, Copy)]
pub struct CheckContext<'a> {
    /// The folder that relative paths start from.
    pub cwd: &'a Path,
    /// The folder that relative patterns are about.
    pub workspace: &'a Path,
    pub home: Option<&'a Path>,
    /// The domains that commands in [`Profile::Workspace`] may reach.
    pub domains: &'a [DomainPattern],
    /// The profiles that the machine enforces.
    pub enforced: EnforcedProfiles,
    pub mode: Mode,
    /// Answers what a git command would change or print.
    pub git: Option<&'a dyn AskGit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    tool: String,
    #[serde(default)]
    args: Value,
    rules: Option<LineRules>,
}

/// The rules of one line. They are used on their own, without the loaded ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineRules {
    default: Option<Behavior>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    ask: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

/// Answers one line: `{"tool","args","rules"?}` in, `{"verdict","rule","why","profile"?,"domains"?}` out. Never panics,
/// never fails: what cannot be read has the verdict `error`.
pub async fn check_line(line: &str, base: &RuleSet, ctx: CheckContext<'_>) -> String {
    let verdict = answer(line, base, ctx).await.unwrap_or_else(|why| Verdict::error(&why));
    let mut answer = json!({ "verdict": verdict.decision.word(), "rule": verdict.rule, "why": verdict.why });
    if let Some(profile) = verdict.profile {
        let mut add = |name: &str, value: Value| {
            answer.as_object_mut().map(|answer| answer.insert(name.to_owned(), value))
        };
        add("profile", profile.word().into());
        if profile == Profile::Workspace && !ctx.domains.is_empty() {
            add("domains", ctx.domains.iter().map(ToString::to_string).collect());
        }
    }
    answer.to_string()
}

async fn answer(line: &str, base: &RuleSet, ctx: CheckContext<'_>) -> Result<Verdict, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| format!("not a question: {error}"))?;
    let own = line.rules.map(LineRules::read).transpose()?;
    let question = CallRequest {
        tool: &line.tool,
        args: &line.args,
        cwd: ctx.cwd,
        workspace: ctx.workspace,
        home: ctx.home,
        primary: None,
    };
    let prepared = PreparedCall::of(&question)
        .map_err(|why| why.to_string())?
        .enforced_by(ctx.enforced)
        .with_history(ctx.git)
        .await;
    let verdict = judge_in(own.as_ref().unwrap_or(base), &prepared, ctx.mode);
    Ok(with_protected(ctx.git, &prepared, verdict).await)
}

impl LineRules {
    fn read(self) -> Result<RuleSet, String> {
        let mut set = RuleSet::new();
        if let Some(default) = self.default {
            set.set_default(default);
        }
        for (behavior, patterns) in
            [(Behavior::Allow, self.allow), (Behavior::Ask, self.ask), (Behavior::Deny, self.deny)]
        {
            set.join(
                RuleSet::from_patterns(Layer::Run, behavior, patterns).map_err(|error| error.to_string())?,
            );
        }
        Ok(set)
    }
}
