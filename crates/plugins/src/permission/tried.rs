//! Records how a call was judged: every rule that was tried, and what the call can do.

use super::command_match::Hit;
use super::evaluate::{CallRequest, CallSubject, Judge, PreparedCall, Verdict, edits_inside, is_file_edit};
use super::mode::{Mode, is_read_only};
use super::rules::{Rule, RuleSet, ToolPermissionBehavior as Behavior};
use super::shell::{self, CommandPart};
use aye_core::contract::judgement::{JudgedPath, Judgement, Risk, SandboxOpening, TriedRule};
use aye_core::contract::terms::Terms;
use aye_core::contract::tool::ToolClass;
use aye_pattern::shell::effect;

impl PreparedCall<'_> {
    /// Every rule about the tool, in order, and whether it matched: for a shell command, any part of it.
    pub fn tried(&self, rules: &RuleSet) -> Vec<TriedRule> {
        let judge = self.judge(rules, None);
        let parts = self.parts();
        let tried = judge.all().filter_map(|rule| {
            let matched = speaks(&judge, rule, &parts);
            // A rule about files may bind a call of another tool.
            let is_about =
                rule.pattern.matches_tool(self.question.tool) || matched && rule.behavior != Behavior::Allow;
            is_about.then(|| TriedRule {
                pattern: rule.pattern.to_string(),
                behavior: rule.behavior.to_string(),
                origin: rule.origin.to_string(),
                matched,
            })
        });
        tried.collect()
    }

    /// Whether one rule matches the call, or any part of it.
    pub fn is_matched_by(&self, rule: &Rule) -> bool {
        let none = RuleSet::new();
        rule.pattern.matches_tool(self.question.tool) && speaks(&self.judge(&none, None), rule, &self.parts())
    }

    /// Returns the terms on which the call is asked about: those of all ask rules that match, or may match.
    pub fn terms(&self, rules: &RuleSet) -> Terms {
        let judge = self.judge(rules, None);
        let mut terms = Terms::default();
        let asking = judge.all().filter(|rule| rule.behavior == Behavior::Ask && !rule.terms.is_empty());
        for rule in asking.filter(|rule| judge.restricts(rule) != Hit::No) {
            terms.join(&rule.terms);
        }
        terms
    }

    /// The file or folder that the call names, as written and where its links lead.
    pub(super) fn paths(&self) -> Vec<JudgedPath> {
        match &self.subject {
            CallSubject::File { seen, .. } => seen.views.iter().cloned().map(JudgedPath).collect(),
            CallSubject::Shell(_) | CallSubject::Other => Vec::new(),
        }
    }

    fn parts(&self) -> Vec<CommandPart<'_>> {
        match &self.subject {
            CallSubject::Shell(analysis) => CommandPart::all(analysis),
            CallSubject::File { .. } | CallSubject::Other => Vec::new(),
        }
    }

    /// Returns what the call can do; `class` is the class that its tool declares.
    pub fn risk(&self, class: Option<ToolClass>) -> Risk {
        if self.host.is_some() {
            return Risk::Network;
        }
        risk(&self.question, Some(&self.subject), class)
    }
}

/// Whether a rule about the tool matches or may match.
fn speaks(judge: &Judge<'_>, rule: &Rule, parts: &[CommandPart<'_>]) -> bool {
    match (rule.behavior, judge.subject) {
        (Behavior::Deny | Behavior::Ask, _) => judge.restricts(rule) != Hit::No,
        (Behavior::Allow, CallSubject::Shell(_)) => shell::speaks_about(rule, judge.question, parts),
        (Behavior::Allow, CallSubject::File { .. } | CallSubject::Other) => judge.permits(rule),
    }
}

fn risk(question: &CallRequest<'_>, subject: Option<&CallSubject>, class: Option<ToolClass>) -> Risk {
    if let Some(CallSubject::Shell(analysis)) = subject {
        return effect(analysis);
    }
    if is_file_edit(question.tool) {
        return if edits_inside(question) { Risk::Edits } else { Risk::Destroys };
    }
    if question.tool == "WebFetch" {
        return Risk::Network;
    }
    if is_read_only(question.tool) || class == Some(ToolClass::Pure) {
        return Risk::Reads;
    }
    Risk::Runs
}

/// The record of a verdict.
pub(super) fn judgement(
    question: &CallRequest<'_>,
    call: Option<&PreparedCall<'_>>,
    rules: &RuleSet,
    verdict: &Verdict,
    mode: Mode,
    class: Option<ToolClass>,
) -> Judgement {
    let mut grants = verdict.grants.iter().map(|grant| grant.id.clone());
    Judgement {
        ruling: verdict.decision.into(),
        rule: verdict.rule.clone(),
        origin: verdict.origin.clone(),
        why: verdict.why.clone(),
        grant: grants.next(),
        other_grants: grants.collect(),
        guards_git: verdict.guards_git,
        profile: verdict.profile,
        opened: SandboxOpening::default(),
        paths: call.map(PreparedCall::paths).unwrap_or_default(),
        mode,
        risk: call.map_or_else(|| risk(question, None, class), |call| call.risk(class)),
        tried: call.map(|call| call.tried(rules)).unwrap_or_default(),
    }
}
