//! What all rules say of one call: the strictest that matches wins, and a doubt asks.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::command_match::{self, Hit};
use super::super::disguise;
use super::super::files::binds;
use super::super::opening::wants_out;
use super::super::path::{ResolvedPath, normalise};
use super::super::protected::is_named_by;
use super::super::reach::{self, RuleOverlap};
use super::super::rules::{Layer, Rule, RuleSet, ToolPermissionBehavior as Behavior};
use super::super::shell;
use super::{
    Allowed, AskKind, CallRequest, CallSubject, EnforcedProfiles, PreparedCall, SHELL_TOOL, Verdict,
    VerdictKind, is_file_edit, path_holds, runs_program,
};
use aye_core::contract::judgement::Profile;
use aye_core::contract::path_policy::PathAccess;
use aye_pattern::shell::{Analysis, Simple, is_legible, visible};
use aye_pattern::{Args, Looked, Matcher, Quantifier};

pub(in crate::permission) struct Judge<'a> {
    pub(super) rules: &'a RuleSet,
    /// A rule besides them.
    pub(super) extra: Option<&'a Rule>,
    pub(in crate::permission) question: &'a CallRequest<'a>,
    pub(super) primary: Option<&'a str>,
    pub(in crate::permission) subject: &'a CallSubject,
    pub(super) call: &'a PreparedCall<'a>,
    pub(super) enforced: EnforcedProfiles,
    /// Whether to skip checking the disk for files that a command line would find.
    pub(super) is_by_words: bool,
}

impl<'a> Judge<'a> {
    /// All rules, in order.
    pub(in crate::permission) fn all(&self) -> impl Iterator<Item = &'a Rule> + use<'a> {
        self.rules.rules().iter().map(AsRef::as_ref).chain(self.extra)
    }

    pub(super) fn verdict(&self) -> Verdict {
        let (denied, maybe_denied) = self.strictest(Behavior::Deny);
        if let Some(rule) = denied {
            return self.by(VerdictKind::Deny, rule);
        }
        let default = self.rules.default_behavior();
        let verdict = self.undenied(maybe_denied, default);
        let verdict = self.asks_out(verdict);
        let runs = matches!(verdict.decision, VerdictKind::Allow | VerdictKind::Ask(_))
            && runs_program(self.question.tool);
        let profile = verdict.profile.or(runs.then_some(Profile::Workspace));
        let verdict = Verdict { profile, ..verdict };
        // A default of deny is not softened by a doubt: only an ask rule turns it into a question.
        if default == Behavior::Deny
            && let VerdictKind::Ask(kind) = verdict.decision
            && !matches!(kind, AskKind::Rule | AskKind::BrokenRules)
        {
            return Verdict::new(VerdictKind::Deny, format!("denied by default: {}", verdict.why));
        }
        verdict
    }

    /// A command that the model wants to run outside the sandbox asks, unless a rule for it says `sandbox: outside`.
    fn asks_out(&self, verdict: Verdict) -> Verdict {
        let is_out = verdict.profile == Some(Profile::Outside);
        if !wants_out(self.question)
            || is_out
            || matches!(verdict.decision, VerdictKind::Deny | VerdictKind::Error)
        {
            return verdict;
        }
        let reason = self.question.args.get("reason").and_then(Value::as_str).map(str::trim);
        let reason = reason.filter(|reason| !reason.is_empty()).unwrap_or("the model gave no reason");
        let decision = match verdict.decision {
            VerdictKind::Ask(kind) if kind != AskKind::Default => VerdictKind::Ask(kind),
            _ => VerdictKind::Ask(AskKind::Outside),
        };
        let why = format!(
            "it wants to run outside the sandbox: {}",
            aye_pattern::shell::excerpt(reason, MAX_REASON)
        );
        Verdict { decision, why, profile: Some(Profile::Outside), grants: Vec::new(), ..verdict }
    }

    fn undenied(&self, maybe_denied: Option<&Rule>, default: Behavior) -> Verdict {
        if let Some(why) = self.rules.refused() {
            let why = format!("the rules could not be loaded, so every call asks: {why}");
            return Verdict::new(VerdictKind::Ask(AskKind::BrokenRules), why);
        }
        let (asked, maybe_asked) = self.strictest(Behavior::Ask);
        if let Some(rule) = asked {
            let ask = self.by(VerdictKind::Ask(AskKind::Rule), rule);
            return Verdict { profile: rule.sandbox, env: rule.env.clone(), ..ask };
        }
        if let Some(verdict) = self.doubt(maybe_denied.or(maybe_asked)) {
            return verdict;
        }
        match self.allowed() {
            Ok(Allowed { rule, grants, guards_git, profile, env }) => {
                let reached = self.reaches(profile);
                let profile = runs_program(self.question.tool).then_some(profile);
                let allow =
                    Verdict { grants, guards_git, profile, env, ..Verdict::by(VerdictKind::Allow, rule) };
                return reached.unwrap_or(allow);
            }
            Err(Some(ask)) if default != Behavior::Allow => return *ask,
            Err(_) => {}
        }
        match default {
            Behavior::Allow => self.allow_by_default(),
            Behavior::Ask => {
                let doubt = match self.subject {
                    CallSubject::File { seen, .. } => self.file_doubt(seen, None),
                    CallSubject::Shell(_) | CallSubject::Other => None,
                };
                doubt.unwrap_or_else(|| {
                    Verdict::new(VerdictKind::Ask(AskKind::Default), "no rule covers this")
                })
            }
            Behavior::Deny => Verdict::new(VerdictKind::Deny, "no rule allows it; the default is deny"),
        }
    }

    fn allow_by_default(&self) -> Verdict {
        if let CallSubject::File { seen, .. } = self.subject
            && let Some(ask) = self.file_doubt(seen, None)
        {
            return ask;
        }
        let allow = || Verdict::new(VerdictKind::Allow, "no rule matches; the default is allow");
        self.reaches(Profile::Workspace).unwrap_or_else(allow)
    }

    fn reaches(&self, profile: Profile) -> Option<Verdict> {
        // As if outside, when this judge knows nothing of the kernel.
        let profile = if self.enforced.masks_in(profile) { profile } else { Profile::Outside };
        if self.is_by_words { None } else { self.call.reaches(self.rules, profile) }
    }

    /// Doubts that no allow rule can take away.
    fn doubt(&self, maybe: Option<&Rule>) -> Option<Verdict> {
        match self.subject {
            CallSubject::Shell(analysis) => {
                if let Some(why) = &analysis.unreadable
                    && !self.allows_this_line()
                {
                    return Some(Verdict::new(VerdictKind::Ask(AskKind::Undecided), why));
                }
                let ask = |rule: &Rule, why: String| Verdict {
                    why,
                    ..Verdict::by(VerdictKind::Ask(AskKind::Undecided), rule)
                };
                if let Some(rule) = maybe {
                    if reach::meets(rule, self.call.named()) == RuleOverlap::Maybe {
                        let why = format!("it may write to a file covered by {}", named(rule));
                        return Some(ask(rule, why));
                    }
                    let part = self.part(
                        |command, matcher| command_match::against(matcher, command) == Hit::Maybe,
                        rule,
                    );
                    let why = format!(
                        "the arguments of `{}` are only known when it runs, so {} may match; write them out",
                        part.unwrap_or_default(),
                        named(rule)
                    );
                    return Some(ask(rule, why));
                }
                if let Some((rule, part)) = self.hidden(analysis)
                    // A rule that names the program knows what it allows.
                    && self.allowed().map_or(true, |by| by.rule.pattern.is_unconditional())
                {
                    let why = format!("`{part}` may run a command covered by {}", named(rule));
                    return Some(ask(rule, why));
                }
                if let Some((rule, part)) = self.disguised(analysis)
                    && self.allowed().map_or(true, |by| by.rule.pattern.is_unconditional())
                {
                    let why = format!("`{part}` may be a program covered by {}", named(rule));
                    return Some(ask(rule, why));
                }
                let strict =
                    self.rules.has(Behavior::Deny, SHELL_TOOL) || self.rules.has(Behavior::Ask, SHELL_TOOL);
                let why = analysis.undecided.as_ref().filter(|_| strict)?;
                // A rule that names the command word by word knows what it allows.
                if self.allowed().is_ok_and(|by| !by.rule.pattern.is_unconditional()) {
                    return None;
                }
                let why = shell::not_by_itself(why, self.question);
                Some(Verdict::new(VerdictKind::Ask(AskKind::Undecided), why.0))
            }
            CallSubject::File { seen, .. } if seen.is_strange => {
                let path =
                    seen.views.first().map(|view| visible(&view.to_string_lossy())).unwrap_or_default();
                let why = format!("the path contains misleading characters: {path}");
                Some(Verdict::new(VerdictKind::Ask(AskKind::Unclear), why))
            }
            CallSubject::File { .. } | CallSubject::Other => None,
        }
    }

    /// Returns whether a rule spells out the whole line, and the user could see what the line says. Then it need not be
    /// understood: it was read by the user who wrote or granted the rule.
    fn allows_this_line(&self) -> bool {
        let line = self.question.args.get("command").and_then(Value::as_str).unwrap_or_default();
        let is_mine =
            |rule: &&Rule| rule.behavior == Behavior::Allow && rule.pattern.matches_tool(self.question.tool);
        is_legible(line)
            && self.all().filter(is_mine).any(|rule| shell::names_whole_line(rule, self.question))
    }

    /// A verdict by a rule that denies or asks. Of a regular expression it names what was matched instead, of a rule
    /// about files the file that a command line names.
    fn by(&self, decision: VerdictKind, rule: &Rule) -> Verdict {
        let mut verdict = Verdict::by(decision, rule);
        if let RuleOverlap::Yes(file) = reach::meets(rule, self.call.named()) {
            verdict.why =
                format!("{} by {}, for the file {}", rule.behavior.verb(), named(rule), visible(file));
            return verdict;
        }
        if has_regex(rule) {
            let part = match self.subject {
                CallSubject::Shell(_) => {
                    self.part(|command, matcher| command_match::against(matcher, command) == Hit::Yes, rule)
                }
                CallSubject::File { .. } | CallSubject::Other => None,
            };
            let text = self.primary.and_then(|key| self.question.args.get(key)).and_then(Value::as_str);
            let part = part.or_else(|| text.map(excerpt)).unwrap_or_default();
            verdict.why = format!("{} by {}, for `{part}`", rule.behavior.verb(), named(rule));
        }
        verdict
    }

    /// The first command of a line that is as said to a rule's comparison of the command.
    fn part(&self, is: impl Fn(&Simple, &Matcher) -> bool, rule: &Rule) -> Option<String> {
        let CallSubject::Shell(analysis) = self.subject else { return None };
        let matchers = command_match::matchers(rule);
        let mut commands = analysis.commands.iter();
        let found = commands.find(|command| matchers.iter().any(|matcher| is(command, matcher)))?;
        Some(excerpt(&command_match::shown(found)))
    }

    /// A rule that denies or asks about a program, and a command of an unknown program that has it among its words.
    fn hidden(&self, analysis: &Analysis) -> Option<(&'a Rule, String)> {
        let mut unknown =
            analysis.commands.iter().filter(|command| command_match::may_run_others(command)).peekable();
        unknown.peek()?;
        let unknown: Vec<&Simple> = unknown.collect();
        let strict =
            |rule: &&Rule| rule.behavior != Behavior::Allow && rule.pattern.matches_tool(self.question.tool);
        self.all().filter(strict).find_map(|rule| {
            let matchers = command_match::matchers(rule);
            let found = unknown
                .iter()
                .find(|command| matchers.iter().any(|matcher| command_match::mentions(matcher, command)))?;
            Some((rule, excerpt(&command_match::shown(found))))
        })
    }

    /// A rule that denies or asks about a program, and a command that starts a file of the workspace which is that program
    /// under another name, or which the line may make from it.
    fn disguised(&self, analysis: &Analysis) -> Option<(&'a Rule, String)> {
        let mut started: Vec<(&Simple, Vec<PathBuf>)> = Vec::new();
        reach::each_command(analysis, self.question.cwd, |command, folders| {
            let program = command.words.first().filter(|word| word.is_known() && word.text.contains('/'));
            let Some(program) = program else { return };
            let files = folders.iter().map(|folder| normalise(&folder.join(&program.text)));
            let files: Vec<PathBuf> =
                files.filter(|file| file.starts_with(self.question.workspace)).collect();
            if !files.is_empty() {
                started.push((command, files));
            }
        });
        if started.is_empty() {
            return None;
        }
        let strict =
            |rule: &&Rule| rule.behavior != Behavior::Allow && rule.pattern.matches_tool(self.question.tool);
        self.all().filter(strict).find_map(|rule| {
            let matchers = command_match::matchers(rule);
            let is_program = |command: &Simple, file: &Path| {
                matchers.iter().any(|matcher| {
                    let (literal, _) = matcher.literal_words();
                    let name = literal.first().and_then(|name| name.rsplit('/').next());
                    let is_missing = || file.symlink_metadata().is_err();
                    let mut others = analysis.commands.iter().filter(|other| !std::ptr::eq(*other, command));
                    name.is_some_and(|name| disguise::is_program(file, name))
                        || others.any(|other| {
                            (disguise::makes_copies(other) || is_missing())
                                && command_match::mentions(matcher, other)
                        })
                })
            };
            let (command, _) =
                started.iter().find(|(command, files)| files.iter().any(|file| is_program(command, file)))?;
            Some((rule, excerpt(&command_match::shown(command))))
        })
    }

    /// The strictest-looking rule of a behaviour that matches for certain, and one that may match.
    fn strictest(&self, behavior: Behavior) -> (Option<&'a Rule>, Option<&'a Rule>) {
        let (mut sure, mut maybe): (Option<&'a Rule>, Option<&'a Rule>) = (None, None);
        for rule in self.all().filter(|rule| rule.behavior == behavior) {
            let slot = match self.restricts(rule) {
                Hit::Yes => &mut sure,
                Hit::Maybe => &mut maybe,
                Hit::No => continue,
            };
            if slot.is_none_or(|other| other.pattern.specificity() < rule.pattern.specificity()) {
                *slot = Some(rule);
            }
        }
        (sure, maybe)
    }

    /// Returns whether a deny or ask rule matches.
    pub(in crate::permission) fn restricts(&self, rule: &Rule) -> Hit {
        let question = self.question;
        let mut maybe = false;
        let hit = rule.pattern.matches_by(
            question.tool,
            question.args,
            self.primary,
            Quantifier::One,
            &mut |looked| match self.subject {
                CallSubject::Shell(analysis) if looked.key == Some("command") => {
                    match command_match::restricts(&looked, analysis) {
                        Hit::Yes => true,
                        Hit::Maybe => {
                            maybe = true;
                            true
                        }
                        Hit::No => false,
                    }
                }
                CallSubject::File { key, seen } if looked.key == Some(*key) => {
                    seen.forms.iter().any(|forms| path_holds(&looked, forms, false))
                }
                _ => looked.holds(),
            },
        );
        match (hit || self.reaches_default_path(rule), maybe) {
            (true, false) => Hit::Yes,
            (true, true) => self.bound(rule).unwrap_or(Hit::Maybe),
            (false, _) => self.bound(rule).unwrap_or(Hit::No),
        }
    }

    /// Returns whether a rule about files binds the call although the rule is about another tool.
    fn bound(&self, rule: &Rule) -> Option<Hit> {
        match self.subject {
            CallSubject::File { seen, .. } => {
                let tool = self.question.tool;
                let access = if is_file_edit(tool) { PathAccess::Write } else { PathAccess::Read };
                let is_search = matches!(tool, "List" | "Glob" | "Grep");
                let is_folder = is_search && seen.views.iter().any(|view| view.is_dir());
                let binds = |forms| binds(rule, access, forms, is_folder);
                (binds(&seen.forms) || binds(&seen.known)).then_some(Hit::Yes)
            }
            CallSubject::Shell(_) if rule.behavior != Behavior::Allow => {
                match reach::meets(rule, self.call.named()) {
                    RuleOverlap::Yes(_) => Some(Hit::Yes),
                    RuleOverlap::Maybe => Some(Hit::Maybe),
                    RuleOverlap::No => None,
                }
            }
            CallSubject::Shell(_) | CallSubject::Other => None,
        }
    }

    /// Returns whether a rule on `path` applies because a search without that argument covers the working
    /// directory.
    fn reaches_default_path(&self, rule: &Rule) -> bool {
        let CallSubject::File { key, seen } = self.subject else { return false };
        if self.question.args.get(*key).is_some_and(|value| !value.is_null()) {
            return false;
        }
        let aye_pattern::Args::All(conditions) = rule.pattern.args() else { return false };
        if !rule.pattern.matches_tool(self.question.tool) {
            return false;
        }
        conditions.iter().all(|condition| {
            let looked = Looked {
                key: condition.path.single_key(),
                text: ".",
                matcher: &condition.matcher,
                negated: condition.negated,
            };
            looked.key == Some(*key) && seen.forms.iter().any(|forms| path_holds(&looked, forms, false))
        })
    }

    /// Returns what allows the call, or what to ask if something almost does. Grants are used only if the
    /// rules are not enough, and grants with a limited number of uses only if nothing else is enough.
    fn allowed(&self) -> Result<Allowed<'a>, Option<Box<Verdict>>> {
        let is_mine =
            |rule: &&Rule| rule.behavior == Behavior::Allow && rule.pattern.matches_tool(self.question.tool);
        let mut rules: Vec<&'a Rule> = self.all().filter(is_mine).collect();
        rules.sort_by_key(|rule| rule.origin.tier());
        // A call that is to run outside needs a rule that allows exactly this, even if other rules would let
        // it run in the sandbox.
        if wants_out(self.question) {
            let outside: Vec<&'a Rule> =
                rules.iter().copied().filter(|rule| rule.profile() == Profile::Outside).collect();
            if let Ok(allowed) = self.allowed_by(&outside) {
                return Ok(allowed);
            }
        }
        let mut refused = None;
        for tier in 0..=2 {
            if tier > 0 && !rules.iter().any(|rule| rule.origin.tier() == tier) {
                continue;
            }
            let these: Vec<&'a Rule> =
                rules.iter().copied().filter(|rule| rule.origin.tier() <= tier).collect();
            match self.allowed_by(&these) {
                Ok(by) => return Ok(by),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    fn allowed_by(&self, rules: &[&'a Rule]) -> Result<Allowed<'a>, Option<Box<Verdict>>> {
        if let CallSubject::Shell(analysis) = self.subject {
            return shell::allowed(rules, analysis, self.question, self.rules, self.enforced)
                .map_err(|why| Some(Box::new(Verdict::new(VerdictKind::Ask(AskKind::Default), why.0))));
        }
        let mut best: Option<&'a Rule> = None;
        let mut doubt = None;
        for rule in rules {
            if !self.permits(rule) {
                continue;
            }
            if let CallSubject::File { seen, .. } = self.subject
                && let Some(ask) = self.file_doubt(seen, Some(rule))
            {
                doubt = Some(ask);
                continue;
            }
            if best.is_none_or(|other| other.pattern.specificity() < rule.pattern.specificity()) {
                best = Some(rule);
            }
        }
        best.and_then(|rule| Allowed::by(&[rule])).ok_or(doubt.map(Box::new))
    }

    pub(in crate::permission) fn permits(&self, rule: &Rule) -> bool {
        let question = self.question;
        // What may leave for another machine is for the user to say: the rules that come with aye allow work here.
        if rule.origin.layer == Layer::Shipped && self.call.host.is_some() {
            return false;
        }
        if rule.origin.layer == Layer::Shipped
            && let CallSubject::File { seen, .. } = self.subject
            && !seen.is_inside
        {
            return false;
        }
        rule.pattern.matches_by(
            question.tool,
            question.args,
            self.primary,
            Quantifier::Every,
            &mut |looked| match self.subject {
                CallSubject::File { key, seen } if looked.key == Some(*key) => {
                    seen.forms.iter().all(|forms| path_holds(&looked, forms, true))
                }
                _ => looked.holds(),
            },
        )
    }

    /// Why a file asks although `rule` (or the default) would allow it.
    fn file_doubt(&self, seen: &ResolvedPath, rule: Option<&Rule>) -> Option<Verdict> {
        let writes = is_file_edit(self.question.tool);
        if seen.is_dangling && writes {
            let why = "a link in the path is broken, so writing would create a file elsewhere";
            return Some(Verdict::new(VerdictKind::Ask(AskKind::Unclear), why));
        }
        if !writes {
            return None;
        }
        let (name, what) = match (&seen.protected, seen.bare_repository(self.question.workspace)) {
            (Some(name), _) => (name.clone(), "is protected"),
            (None, Some(name)) => (
                name,
                "is inside a git repository's own files, from which git runs \
                              commands",
            ),
            (None, None) => return None,
        };
        if rule.is_some_and(|rule| is_named_by(&name.to_lowercase(), rule)) {
            return None;
        }
        let why = format!("`{name}` {what}; only a rule that names it allows a change");
        Some(Verdict::new(VerdictKind::Ask(AskKind::Protected), why))
    }
}

/// Describes a rule for a user: never as a regular expression.
pub(in crate::permission) fn named(rule: &Rule) -> String {
    if has_regex(rule) {
        format!("a rule ({})", rule.origin)
    } else {
        format!("rule `{}` ({})", rule.pattern, rule.origin)
    }
}

fn has_regex(rule: &Rule) -> bool {
    let is_named_by_regex = rule.pattern.to_string().starts_with('/');
    is_named_by_regex
        || match rule.pattern.args() {
            Args::Any => false,
            Args::Primary(matcher) => matches!(matcher, Matcher::Regex(_)),
            Args::All(all) => all.iter().any(|condition| matches!(condition.matcher, Matcher::Regex(_))),
        }
}

/// Characters of a model's reason that are shown.
const MAX_REASON: usize = 300;

/// Returns the start of a text on one line, for a reason.
pub(in crate::permission) fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    aye_pattern::shell::excerpt(text, MAX_CHARS)
}
