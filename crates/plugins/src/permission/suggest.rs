//! Finds the fewest rules that would have answered what the user always answered in the same way.

use super::evaluate::{EnforcedProfiles, PreparedCall, SHELL_TOOL, VerdictKind, evaluate, known_primary};
use super::file::{PermissionRuleEntry, PermissionRulesConfig};
use super::files::may_bind;
use super::grant::propose_grants;
use super::past::Past;
use super::rules::{Layer, Rule, RuleSet, RuleSource, ToolPermissionBehavior as Behavior};
use aye_core::contract::audit::PastAnswer;
use aye_core::contract::display::is_unsafe;
use aye_core::contract::judgement::Ruling;
use aye_pattern::Pattern;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// The fewest calls a rule must answer to count as a habit.
const HABIT: u64 = 2;
/// Examples that a suggested rule carries.
const EXAMPLES: usize = 3;
/// Maximum pairs of a rule and a question to try; beyond this, only pairs that belong together are tried.
const PAIRS: usize = 200_000;

/// A rule that would have answered questions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SuggestedRule {
    /// The rule, with examples from the past.
    #[serde(flatten)]
    pub rule: PermissionRuleEntry,
    /// A description of what the rule covers.
    pub text: String,
    /// The number of questions that this rule alone would have saved.
    pub saves: u64,
}

/// The suggested rules and what they would have saved.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Suggestions {
    /// Questions that the user answered.
    pub asked: u64,
    /// The number of those questions that the rules together would have saved.
    pub saved: u64,
    /// The rules: those that deny first, then by what they save.
    pub rules: Vec<SuggestedRule>,
}

/// The user's answers to a question, over all its calls.
#[derive(Debug, Clone, Copy, Default)]
struct Answers {
    yes: u64,
    no: u64,
    changed: u64,
}

/// A rule that could be suggested.
struct Candidate {
    rule: Rule,
    text: String,
    /// 0 is the narrowest that can be said of a call.
    breadth: usize,
    /// Questions that it was proposed for.
    own: BTreeSet<usize>,
    /// Questions that this rule alone answers, with the weight of each.
    covers: BTreeMap<usize, u64>,
}

/// The rules in force, the past, and what is known of it.
struct Search<'a> {
    past: &'a Past,
    base: RuleSet,
    home: Option<&'a Path>,
    answers: BTreeMap<usize, Answers>,
    /// The answered questions, each analysed once. An invalid question is missing.
    seen: BTreeMap<usize, PreparedCall<'a>>,
}

/// Suggests rules. `rules` are those in force: what they already answer needs no suggestion.
pub fn suggest(past: &Past, rules: &RuleSet, home: Option<&Path>) -> Suggestions {
    let mut answers: BTreeMap<usize, Answers> = BTreeMap::new();
    let mut asked = 0;
    for call in past.calls.iter().filter(|call| call.ruling == Ruling::Ask) {
        let slot = answers.entry(call.question).or_default();
        match call.answer {
            Some(PastAnswer::Allowed) => slot.yes += 1,
            Some(PastAnswer::Declined) => slot.no += 1,
            Some(PastAnswer::Modified) => slot.changed += 1,
            Some(PastAnswer::Expired) | None => continue,
        }
        asked += 1;
    }
    let all: Vec<usize> = (0..past.questions.len()).collect();
    let verdicts = past.judge(rules, &all, home);
    let is_open = |question: &usize| matches!(verdicts[*question].decision, VerdictKind::Ask(_));
    let prepare = |question: &usize| {
        Some((
            *question,
            PreparedCall::of(&past.question(*question, home)).ok()?.enforced_by(EnforcedProfiles::ALL),
        ))
    };
    let seen = answers.keys().filter_map(prepare).collect();
    let mut search = Search { past, base: rules.clone(), home, answers, seen };

    // Denials come first, because they apply no matter what else is allowed.
    let of = |search: &Search<'_>, pick: fn(Answers) -> u64| -> BTreeMap<usize, u64> {
        let picked = search.answers.iter().map(|(question, answers)| (*question, pick(*answers)));
        picked.filter(|(question, count)| *count > 0 && is_open(question)).collect()
    };
    let declined = of(&search, |a| if a.yes + a.changed == 0 { a.no } else { 0 });
    let kept: Vec<usize> = all
        .iter()
        .copied()
        .filter(|question| {
            verdicts[*question].decision == VerdictKind::Allow
                || search.answers.get(question).is_some_and(|a| a.yes + a.changed > 0)
        })
        .collect();
    let denies = search.choose(&declined, Behavior::Deny, &|search, chosen, more| {
        let with = with(rules, chosen, Some(more));
        kept.iter().all(|question| {
            !search.may_reach(&more.rule, *question)
                || match search.decision(&with, *question) {
                    VerdictKind::Deny | VerdictKind::Error => false,
                    // It must not raise a doubt where there was none either.
                    VerdictKind::Ask(_) => verdicts[*question].decision != VerdictKind::Allow,
                    VerdictKind::Allow => true,
                }
        })
    });
    for rule in &denies {
        search.base.push(rule.rule.clone());
    }
    let allowed = of(&search, |a| if a.no + a.changed == 0 { a.yes } else { 0 });
    let refused: Vec<usize> = (search.answers.iter())
        .filter(|(_, answers)| answers.no + answers.changed > 0)
        .map(|(question, _)| *question)
        .filter(|question| search.decision(rules, *question) != VerdictKind::Allow)
        .collect();
    // The allow rules must be safe without the denials too, because the user may adopt one and not the other.
    let allows = search.choose(&allowed, Behavior::Allow, &|search, chosen, more| {
        let with = with(rules, chosen, Some(more));
        refused.iter().all(|question| {
            !more.rule.pattern.matches_tool(&search.past.questions[*question].tool)
                || search.decision(&with, *question) != VerdictKind::Allow
        })
    });
    let with = with(&search.base, &allows, None);
    let answered = |questions: &BTreeMap<usize, u64>, decision: VerdictKind| -> u64 {
        let done = questions.iter().filter(|(question, _)| search.decision(&with, **question) == decision);
        done.map(|(_, count)| count).sum()
    };
    let saved = answered(&declined, VerdictKind::Deny) + answered(&allowed, VerdictKind::Allow);
    let rules = denies.into_iter().chain(allows).map(|candidate| search.finish(candidate)).collect();
    Suggestions { asked, saved, rules }
}

/// Whether one more rule is correct in addition to the chosen ones.
type IsRight<'f> = dyn Fn(&Search<'_>, &[Candidate], &Candidate) -> bool + 'f;

fn with(base: &RuleSet, rules: &[Candidate], more: Option<&Candidate>) -> RuleSet {
    let mut set = base.clone();
    for candidate in rules.iter().chain(more) {
        set.push(candidate.rule.clone());
    }
    set
}

impl Search<'_> {
    fn decision(&self, rules: &RuleSet, question: usize) -> VerdictKind {
        match self.seen.get(&question) {
            Some(call) => call.verdict_by_words(rules, None).decision,
            None => evaluate(rules, &self.past.question(question, self.home)).decision,
        }
    }

    /// Whether a rule could affect a question. The check is cheap, and `false` is always correct.
    fn may_reach(&self, rule: &Rule, question: usize) -> bool {
        let question = &self.past.questions[question];
        if !rule.pattern.matches_tool(&question.tool) {
            return may_bind(rule, &question.tool);
        }
        match first_word(&rule.pattern) {
            Some(word) if question.tool == SHELL_TOOL => {
                let command = question.arguments.get("command").and_then(Value::as_str).unwrap_or_default();
                // A word that the shell assembles need not appear literally in the command.
                command.contains(&word) || command.contains(['\\', '"', '\'', '$', '`', '*', '?', '[', '{'])
            }
            Some(_) | None => true,
        }
    }

    /// The rules that could be said of the questions.
    fn candidates(&self, questions: &BTreeMap<usize, u64>, behavior: Behavior) -> Vec<Candidate> {
        let mut found: BTreeMap<String, Candidate> = BTreeMap::new();
        for question in questions.keys() {
            let asked = self.past.question(*question, self.home);
            let mut proposals: Vec<(String, String)> =
                propose_grants(&asked).into_iter().map(|grant| (grant.pattern, grant.text)).collect();
            // A call that cannot be granted can still be denied, by a rule for exactly this call.
            if proposals.is_empty()
                && behavior == Behavior::Deny
                && let Some(key) = known_primary(asked.tool)
                && let Some(text) = asked.args.get(key).and_then(Value::as_str)
            {
                let shown = aye_core::contract::display::visible_line(text);
                let literal = Pattern::literal(asked.tool, key, text).to_string();
                proposals.push((literal, format!("exactly `{shown}`")));
            }
            for (breadth, (pattern, text)) in proposals.into_iter().enumerate() {
                // As it will be read from the file; what cannot be read is not suggested.
                let Ok(parsed) = Pattern::parse(&pattern) else { continue };
                let candidate = found.entry(pattern).or_insert_with(|| Candidate {
                    rule: Rule::new(parsed, behavior, RuleSource::of(Layer::User)),
                    text,
                    breadth,
                    own: BTreeSet::new(),
                    covers: BTreeMap::new(),
                });
                candidate.own.insert(*question);
                candidate.breadth = candidate.breadth.max(breadth);
            }
        }
        found.into_values().collect()
    }

    /// Chooses, again and again, the rule that answers most of what is not answered yet, the narrower of two; one
    /// that is not right is never chosen.
    fn choose(
        &self,
        questions: &BTreeMap<usize, u64>,
        behavior: Behavior,
        is_right: &IsRight<'_>,
    ) -> Vec<Candidate> {
        let wanted = if behavior == Behavior::Deny { VerdictKind::Deny } else { VerdictKind::Allow };
        let mut candidates = self.candidates(questions, behavior);
        let is_wide = candidates.len() * questions.len() > PAIRS;
        for candidate in &mut candidates {
            let near: Vec<(usize, u64)> = questions
                .iter()
                .filter(|(question, _)| {
                    candidate.own.contains(question)
                        || (!is_wide && candidate.breadth > 0 && self.may_reach(&candidate.rule, **question))
                })
                .map(|(question, count)| (*question, *count))
                .collect();
            if near.iter().map(|(_, count)| count).sum::<u64>() < HABIT {
                continue;
            }
            let answers = |question: &usize| {
                let call = self.seen.get(question);
                call.is_some_and(|call| {
                    call.verdict_by_words(&self.base, Some(&candidate.rule)).decision == wanted
                })
            };
            candidate.covers = near.into_iter().filter(|(question, _)| answers(question)).collect();
        }
        candidates.retain(|candidate| candidate.covers.values().sum::<u64>() >= HABIT);
        let mut chosen: Vec<Candidate> = Vec::new();
        let mut left = questions.clone();
        loop {
            let gain = |candidate: &Candidate| -> u64 {
                candidate
                    .covers
                    .iter()
                    .filter(|(question, _)| left.contains_key(question))
                    .map(|(_, n)| n)
                    .sum()
            };
            let best = (0..candidates.len()).max_by_key(|at| {
                let candidate = &candidates[*at];
                (gain(candidate), std::cmp::Reverse(candidate.breadth), std::cmp::Reverse(*at))
            });
            let Some(best) = best.filter(|at| gain(&candidates[*at]) >= HABIT) else { break };
            let candidate = candidates.swap_remove(best);
            if !is_right(self, &chosen, &candidate) {
                continue;
            }
            left.retain(|question, _| !candidate.covers.contains_key(question));
            chosen.push(candidate);
        }
        self.prune(&mut chosen, questions, wanted);
        chosen.sort_by_key(|candidate| std::cmp::Reverse(candidate.covers.values().sum::<u64>()));
        chosen
    }

    /// Takes away every rule without which the others answer as much.
    fn prune(&self, chosen: &mut Vec<Candidate>, questions: &BTreeMap<usize, u64>, wanted: VerdictKind) {
        let answered = |set: &RuleSet| -> Vec<usize> {
            questions.keys().copied().filter(|question| self.decision(set, *question) == wanted).collect()
        };
        let whole = answered(&with(&self.base, chosen, None));
        let mut at = chosen.len();
        while at > 0 {
            at -= 1;
            let out = chosen.remove(at);
            let set = with(&self.base, chosen, None);
            if whole.iter().any(|question| self.decision(&set, *question) != wanted) {
                chosen.insert(at, out);
            }
        }
    }

    /// The rule as it goes to the file.
    fn finish(&self, candidate: Candidate) -> SuggestedRule {
        let pattern = candidate.rule.pattern.to_string();
        let mut rule = PermissionRuleEntry {
            tool: pattern,
            behavior: candidate.rule.behavior,
            matches: Vec::new(),
            not_match: Vec::new(),
            expires_in: None,
            notify: None,
            sandbox: candidate.rule.sandbox,
            env: candidate.rule.env.clone(),
        };
        for question in candidate.covers.keys() {
            if rule.matches.len() == EXAMPLES {
                break;
            }
            let asked = &self.past.questions[*question];
            let text = known_primary(&asked.tool).and_then(|key| asked.arguments.get(key)?.as_str());
            let Some(text) = text else { continue };
            let example = Value::from(text);
            if rule.matches.contains(&example) {
                continue;
            }
            // An example is checked without its original folder, so one that does not match there is left
            // out.
            let mut with = rule.clone();
            with.matches.push(example);
            let config = PermissionRulesConfig { default_behavior: None, rules: vec![with.clone()] };
            if config.into_ruleset().is_ok() {
                rule = with;
            }
        }
        SuggestedRule { rule, text: candidate.text, saves: candidate.covers.values().sum() }
    }
}

/// Returns the first word of a command pattern, if that word is literal.
fn first_word(pattern: &Pattern) -> Option<String> {
    let aye_pattern::Args::Primary(matcher) = pattern.args() else { return None };
    matcher.literal_words().0.first().cloned()
}

impl Suggestions {
    /// The rules as a file of rules, or to be pasted into one.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "# You answered {} questions; these rules would have answered {} of them as you did.\n\
             # Take over what you agree with: add it to permissions.yaml, under `rules:`.",
            self.asked, self.saved
        );
        if self.rules.is_empty() {
            out.push_str("rules: []\n");
            return out;
        }
        out.push_str("rules:\n");
        for SuggestedRule { rule, text, saves } in &self.rules {
            let word = match rule.behavior {
                Behavior::Allow => "you always approved",
                Behavior::Deny => "you always denied",
                Behavior::Ask => "you were asked",
            };
            let _ = writeln!(
                out,
                "  # {saves} questions, {word}: {}",
                aye_core::contract::display::visible_line(text)
            );
            let _ = write!(out, "  - {{tool: {}, behavior: {}", quoted(&rule.tool), rule.behavior);
            if !rule.matches.is_empty() {
                let examples = rule.matches.iter().filter_map(Value::as_str).map(quoted);
                let _ = write!(out, ", match: [{}]", examples.collect::<Vec<_>>().join(", "));
            }
            out.push_str("}\n");
        }
        out
    }
}

/// A text in the double quotes of YAML, with nothing in it that a terminal obeys or a reader cannot see.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_unsafe(c) => {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
