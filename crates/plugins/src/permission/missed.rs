//! Finds the grant of the ledger that would have answered a question, and why it did not.

use super::evaluate::{AskKind, PreparedCall, VerdictKind};
use super::handle::{Permissions, is_over};
use super::rules::{Rule, RuleSet, ToolPermissionBehavior as Behavior};
use aye_core::contract::grant::MissedGrant;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::record::{GrantRecord, GrantScope};

/// Maximum grants with a pattern for the tool that are checked against the call: a card has to appear at
/// once.
const MOST: usize = 50;

/// Why a grant did not answer, the most telling first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// It applies here, but a rule asks.
    Outranked,
    /// It applied here but no longer does.
    Over,
    Elsewhere,
}

impl Permissions {
    /// The grant that would have answered the question about a call.
    pub(super) fn missed_grant(
        &self,
        call: &PreparedCall<'_>,
        (thread, run): (&ThreadId, &RunId),
        kind: AskKind,
        rules: &RuleSet,
        spent: &[String],
    ) -> Option<MissedGrant> {
        if kind == AskKind::BrokenRules {
            return None;
        }
        let (enforced, ended, now_ms) = self.ledger();
        let mut found: Vec<(Class, GrantRecord)> = Vec::new();
        for (grant, has_ended) in
            enforced.into_iter().map(|g| (g, false)).chain(ended.into_iter().map(|g| (g, true)))
        {
            let reaches = self.reaches(&grant.scope, thread, run);
            let has_ended = has_ended || spent.contains(&grant.id) || is_over(&grant, now_ms);
            let class = match (has_ended, reaches) {
                (true, true) => Class::Over,
                (true, false) => continue,
                (false, true) => Class::Outranked,
                (false, false) => Class::Elsewhere,
            };
            found.push((class, grant));
        }
        found.sort_by_key(|(class, grant)| (*class, std::cmp::Reverse(grant.created_at)));
        let allowing = rules.only(Behavior::Allow);
        let fitting = found.into_iter().filter_map(|(class, grant)| {
            let rule = Rule::granted(&grant.pattern).ok()?;
            rule.pattern.matches_tool(call.question.tool).then_some((class, grant, rule))
        });
        for (class, grant, rule) in fitting.take(MOST) {
            if !call.is_matched_by(&rule) {
                continue;
            }
            let answers = |rules: &RuleSet| call.verdict_with(rules, &rule).decision == VerdictKind::Allow;
            let would = match (class, kind) {
                (Class::Outranked, AskKind::Rule) => answers(&allowing),
                // It was among the rules and did not help: something else is the matter.
                (Class::Outranked, _) => false,
                // A rule asks every time, whatever was granted.
                (Class::Over | Class::Elsewhere, AskKind::Rule) => false,
                (Class::Over | Class::Elsewhere, _) => answers(rules),
            };
            if would {
                let is_spent = spent.contains(&grant.id);
                return Some(spent_grant(class, grant, now_ms, is_spent));
            }
        }
        None
    }
}

fn spent_grant(class: Class, grant: GrantRecord, now_ms: u64, is_spent: bool) -> MissedGrant {
    // The count of a grant that was spent a moment ago is an older one.
    let is_late = grant.expires_at.is_some_and(|end| end <= now_ms);
    let used_up = grant.max_uses.filter(|most| grant.uses >= *most || is_spent && !is_late);
    let (why, at) = match class {
        Class::Outranked => ("is in force, but a rule asks every time".to_owned(), None),
        Class::Over => match (grant.revoked_at, used_up) {
            (Some(at), _) => ("was revoked".to_owned(), Some(at)),
            (None, Some(most)) => (format!("is used up: it was for {most} {}", calls(most)), None),
            (None, None) => ("ended".to_owned(), grant.expires_at.filter(|end| *end <= now_ms)),
        },
        Class::Elsewhere => ("does not cover this call".to_owned(), None),
    };
    let scope = match (&grant.scope, class) {
        (GrantScope::Run(_), Class::Elsewhere) => "another run".to_owned(),
        (GrantScope::Thread(_), Class::Elsewhere) => "another conversation".to_owned(),
        (GrantScope::Project(root), Class::Elsewhere) => format!("the project {}", root.display()),
        (scope, _) => scope.words().to_owned(),
    };
    MissedGrant { id: grant.id, pattern: grant.pattern, scope, why, at }
}

fn calls(most: u64) -> &'static str {
    if most == 1 { "call" } else { "calls" }
}
