//! The verdict over one call: deny > ask > allow > default.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use super::files::FileRules;
use super::git_changes::AskGit;
use super::path::{self, Forms, NotAPath, PathRoots, ResolvedPath};
use super::reach::{self, FilesInCommits, NamedFile, Reached};
use super::rules::{GrantMark, Rule, RuleSet, ToolPermissionBehavior as Behavior};
use aye_core::contract::judgement::{Profile, Ruling};
use aye_files::known::KnownFiles;
use aye_files::names::Mounted;
use aye_pattern::shell::{Analysis, analyse};
use aye_pattern::{Looked, Matcher};

mod judge;

pub(super) use judge::{Judge, excerpt, named};

/// One call that is to be judged.
#[derive(Debug, Clone, Copy)]
pub struct CallRequest<'a> {
    pub tool: &'a str,
    pub args: &'a Value,
    /// The folder that relative paths start from.
    pub cwd: &'a Path,
    /// The folder that relative patterns are about.
    pub workspace: &'a Path,
    /// The user's home, if there is one.
    pub home: Option<&'a Path>,
    /// The name of the tool's primary argument, when it declares one.
    pub primary: Option<&'a str>,
}

impl CallRequest<'_> {
    pub(super) fn places(&self) -> PathRoots<'_> {
        PathRoots { cwd: self.cwd, workspace: self.workspace, home: self.home, volumes: &Mounted }
    }
}

/// The profiles that the kernel of this machine enforces: for these, the judge need not know the effect of
/// each option of a program. None by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EnforcedProfiles {
    /// [`Profile::Read`].
    pub read: bool,
    /// [`Profile::Workspace`], with files that rules deny or ask about masked.
    pub workspace: bool,
}

impl EnforcedProfiles {
    pub const ALL: EnforcedProfiles = EnforcedProfiles { read: true, workspace: true };

    fn masks_in(self, profile: Profile) -> bool {
        match profile {
            Profile::Read => self.read,
            Profile::Workspace => self.workspace,
            Profile::Outside => false,
        }
    }
}

/// The decision on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictKind {
    Allow,
    /// The user is asked.
    Ask(AskKind),
    /// It does not run.
    Deny,
    /// The call is invalid: it does not run, and nobody is asked.
    Error,
}

impl From<VerdictKind> for Ruling {
    fn from(verdict: VerdictKind) -> Self {
        match verdict {
            VerdictKind::Allow => Self::Allow,
            VerdictKind::Ask(_) => Self::Ask,
            VerdictKind::Deny => Self::Deny,
            VerdictKind::Error => Self::Error,
        }
    }
}

impl VerdictKind {
    /// The word of the check protocol.
    pub fn word(self) -> &'static str {
        match self {
            VerdictKind::Allow => "allow",
            VerdictKind::Ask(_) => "ask",
            VerdictKind::Deny => "deny",
            VerdictKind::Error => "error",
        }
    }
}

/// The reason the user is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskKind {
    /// A rule requires it.
    Rule,
    /// No rule allows it.
    Default,
    /// It is not certain what a shell command would do.
    Undecided,
    /// A file that needs to be named by a rule.
    Protected,
    /// A path that does not show what it is.
    Unclear,
    /// The rules could not be loaded.
    BrokenRules,
    /// It would run outside the sandbox, and no rule says that it may.
    Outside,
}

/// The answer to a [`CallRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub decision: VerdictKind,
    /// The rule that decided, as its pattern.
    pub rule: Option<String>,
    /// The location of that rule.
    pub origin: Option<String>,
    /// The reason, for the user and for the model.
    pub why: String,
    /// The grants that it needed to be allowed.
    pub grants: Vec<GrantMark>,
    /// It runs git, and only rules that come with aye allow that: see [`Judgement::guards_git`].
    ///
    /// [`Judgement::guards_git`]: aye_core::contract::judgement::Judgement::guards_git
    pub guards_git: bool,
    /// The profile that the kernel enforces, or would enforce after approval: see
    /// [`Judgement::profile`](aye_core::contract::judgement::Judgement::profile).
    pub profile: Option<Profile>,
    /// Variables that its rules name for the command.
    pub env: Vec<String>,
}

impl Verdict {
    pub(super) fn new(decision: VerdictKind, why: impl Into<String>) -> Verdict {
        Verdict {
            decision,
            rule: None,
            origin: None,
            why: why.into(),
            grants: Vec::new(),
            guards_git: false,
            profile: None,
            env: Vec::new(),
        }
    }

    /// The call makes no sense.
    pub(super) fn error(why: &str) -> Verdict {
        Verdict::new(VerdictKind::Error, why)
    }

    fn by(decision: VerdictKind, rule: &Rule) -> Verdict {
        let why = format!("{} by {}", rule.behavior.verb(), named(rule));
        Verdict {
            rule: Some(rule.pattern.to_string()),
            origin: Some(rule.origin.to_string()),
            ..Verdict::new(decision, why)
        }
    }
}

/// The basis on which a call is allowed.
pub(super) struct Allowed<'r> {
    /// The rule shown to the user.
    pub(super) rule: &'r Rule,
    /// The grants among all rules that were needed.
    pub(super) grants: Vec<GrantMark>,
    /// See [`Verdict::guards_git`].
    pub(super) guards_git: bool,
    /// The profile that the kernel enforces on a command.
    pub(super) profile: Profile,
    /// Variables that its rules name for the command.
    pub(super) env: Vec<String>,
}

impl<'r> Allowed<'r> {
    /// Returns the permission given by these rules together. A grant is reported in preference to a rule that
    /// allows everybody the same.
    pub(super) fn by(used: &[&'r Rule]) -> Option<Allowed<'r>> {
        let first = *used.first()?;
        let rule = used
            .iter()
            .fold(first, |best, rule| if rule.origin.tier() > best.origin.tier() { rule } else { best });
        let mut grants: Vec<GrantMark> = Vec::new();
        for mark in used.iter().filter_map(|rule| rule.origin.grant.as_ref()) {
            if !grants.contains(mark) {
                grants.push(mark.clone());
            }
        }
        let env = if used.len() == 1 { rule.env.clone() } else { Vec::new() };
        Some(Allowed { rule, grants, guards_git: false, profile: rule.profile(), env })
    }
}

/// The tool whose primary argument is a shell command.
pub(super) const SHELL_TOOL: &str = "Bash";
/// The tool that runs scripts of skills.
pub(super) const SCRIPT_TOOL: &str = "skill_script";

/// True for the tools whose programs the kernel keeps to a profile.
pub(super) fn runs_program(tool: &str) -> bool {
    matches!(tool, SHELL_TOOL | SCRIPT_TOOL)
}

/// The primary argument of the tools everybody knows.
pub fn known_primary(tool: &str) -> Option<&'static str> {
    Some(match tool {
        "Bash" => "command",
        "BashInput" => "text",
        "Read" | "Write" | "Edit" => "file_path",
        "Glob" | "Grep" => "pattern",
        "WebFetch" => "url",
        "List" => "path",
        _ => return None,
    })
}

/// Returns the argument that contains a path, and whether it is required.
fn path_argument(tool: &str) -> Option<(&'static str, bool)> {
    match tool {
        "Read" | "Write" | "Edit" => Some(("file_path", true)),
        "List" | "Glob" | "Grep" => Some(("path", false)),
        _ => None,
    }
}

/// The subject of the call.
pub(super) enum CallSubject {
    Shell(Analysis),
    File { key: &'static str, seen: ResolvedPath },
    Other,
}

/// A call that was analysed once, to be checked against several sets of rules.
pub struct PreparedCall<'a> {
    pub(super) question: CallRequest<'a>,
    pub(super) primary: Option<&'a str>,
    pub(super) subject: CallSubject,
    named: OnceLock<Vec<NamedFile>>,
    reached: Mutex<Option<KnownReach>>,
    enforced: EnforcedProfiles,
    history: FilesInCommits,
    known: Option<&'a KnownFiles>,
    /// The other machine's host that the call sends its arguments to.
    pub(super) host: Option<String>,
}

/// The files that a line would find on disk.
#[derive(Debug)]
struct KnownReach {
    /// The rules that were asked about it.
    rules: Vec<Arc<Rule>>,
    /// Whether the kernel masks the files of these rules.
    is_masked: bool,
    reached: Reached,
}

impl<'a> PreparedCall<'a> {
    /// Analyses a call.
    ///
    /// # Errors
    /// The reason the call is invalid.
    pub fn of(question: &CallRequest<'a>) -> Result<PreparedCall<'a>, InvalidCall> {
        let primary = question.primary.or_else(|| known_primary(question.tool));
        let subject = subject(question, primary)?;
        Ok(PreparedCall {
            question: *question,
            primary,
            subject,
            named: OnceLock::new(),
            reached: Mutex::default(),
            enforced: EnforcedProfiles::default(),
            history: FilesInCommits::new(),
            known: None,
            host: None,
        })
    }

    /// The same call where rules knew files under other names.
    #[must_use]
    pub fn known_as(mut self, known: &'a KnownFiles) -> PreparedCall<'a> {
        if let CallSubject::File { seen, .. } = &mut self.subject {
            seen.known = path::known_forms(&seen.views, known, &self.question.places());
        }
        PreparedCall { known: Some(known), ..self }
    }

    /// The same call of a tool that sends its arguments to another machine.
    #[must_use]
    pub fn sent_to(self, host: Option<String>) -> PreparedCall<'a> {
        PreparedCall { host, ..self }
    }

    /// The same call on a machine that enforces this.
    #[must_use]
    pub fn enforced_by(self, enforced: EnforcedProfiles) -> PreparedCall<'a> {
        PreparedCall { enforced, ..self }
    }

    /// The same call where git said which files the older commits contain that it would print. Without this, only the
    /// files of git's index count.
    #[must_use]
    pub async fn with_history(self, git: Option<&dyn AskGit>) -> PreparedCall<'a> {
        let (Some(git), CallSubject::Shell(analysis)) = (git, &self.subject) else { return self };
        let mut history = FilesInCommits::new();
        for (root, words) in reach::printed_repositories(analysis, self.question.cwd) {
            let names = git.names_in_history(&root, &words).await;
            history.insert(root, names);
        }
        PreparedCall { history, ..self }
    }

    /// Judges it by the rules.
    pub fn verdict(&self, rules: &RuleSet) -> Verdict {
        self.judge(rules, None).verdict()
    }

    /// Judges it by the rules as if nothing was sandboxed.
    pub(super) fn verdict_outside(&self, rules: &RuleSet) -> Verdict {
        Judge { enforced: EnforcedProfiles::default(), ..self.judge(rules, None) }.verdict()
    }

    /// Judges the call by the rules, without checking the files that a command line would find.
    pub(super) fn verdict_by_words(&self, rules: &RuleSet, extra: Option<&Rule>) -> Verdict {
        Judge { is_by_words: true, ..self.judge(rules, extra) }.verdict()
    }

    /// Judges it by the rules and one more.
    pub fn verdict_with(&self, rules: &RuleSet, extra: &Rule) -> Verdict {
        self.judge(rules, Some(extra)).verdict()
    }

    pub(super) fn judge<'r>(&'r self, rules: &'r RuleSet, extra: Option<&'r Rule>) -> Judge<'r> {
        Judge {
            rules,
            extra,
            question: &self.question,
            primary: self.primary,
            call: self,
            enforced: self.enforced,
            is_by_words: false,
            subject: &self.subject,
        }
    }

    /// The files that a command line names.
    fn named(&self) -> &[NamedFile] {
        self.named.get_or_init(|| match &self.subject {
            CallSubject::Shell(analysis) => reach::named(analysis, &self.question.places(), self.known),
            CallSubject::File { .. } | CallSubject::Other => Vec::new(),
        })
    }

    /// Why a command line may not run without a question although something allows it: it would find a file that a rule
    /// is about, and that the kernel does not mask in this profile.
    pub(super) fn reaches(&self, rules: &RuleSet, profile: Profile) -> Option<Verdict> {
        let is_masked = self.enforced.masks_in(profile);
        let CallSubject::Shell(analysis) = &self.subject else { return None };
        let files = FileRules::of(rules, &self.question.places());
        // A walk costs more than everything else, and grants do not change what it finds.
        let mut known = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = match &*known {
            Some(known) if known.is_masked == is_masked && files.is_of(&known.rules) => known.reached.clone(),
            _ => {
                let reached =
                    reach::reached(analysis, &self.question.places(), &files, is_masked, &self.history);
                let rules = files.rules().to_vec();
                *known = Some(KnownReach { rules, is_masked, reached: reached.clone() });
                reached
            }
        };
        Some(match reached {
            Reached::Nothing => return None,
            Reached::File(file, rule) => {
                let by = Verdict::by(VerdictKind::Ask(AskKind::Rule), &rule);
                let what = if rule.behavior == Behavior::Deny { "denies" } else { "asks about" };
                let why = format!("it would read {file}, and {} {what} that", named(&rule));
                Verdict { why, ..by }
            }
            Reached::Link(link) => {
                let why = format!("it would follow the link {link} to files not checked against the rules");
                Verdict::new(VerdictKind::Ask(AskKind::Default), why)
            }
            Reached::WorkTree(folder) => {
                let why = format!("the repository's settings make git read {folder}, outside the workspace");
                Verdict::new(VerdictKind::Ask(AskKind::Default), why)
            }
            Reached::Settings(file) => {
                let why = format!(
                    "the repository's settings make git read {file}, which is not checked against the rules"
                );
                Verdict::new(VerdictKind::Ask(AskKind::Default), why)
            }
            Reached::Index => {
                let why = "git's index cannot be read to check its files against the rules";
                Verdict::new(VerdictKind::Ask(AskKind::Default), why)
            }
            Reached::History => {
                let why = "git does not say, or has not said yet, which files this prints, so they cannot be checked against the rules";
                Verdict::new(VerdictKind::Ask(AskKind::Default), why)
            }
            Reached::TooMuch(folder) => {
                let why = format!(
                    "too many files in {folder} to check each against the rules; use a smaller folder"
                );
                Verdict::new(VerdictKind::Ask(AskKind::Default), why)
            }
        })
    }
}

/// Judges a call by the rules.
pub fn evaluate(rules: &RuleSet, question: &CallRequest<'_>) -> Verdict {
    match PreparedCall::of(question) {
        Ok(call) => call.verdict(rules),
        Err(why) => Verdict::error(&why.to_string()),
    }
}

/// The reason a call is invalid, whatever the rules say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCall {
    /// Its arguments have no names.
    #[error("the arguments of {tool} are not an object")]
    NotAnObject { tool: String },
    /// An argument is missing.
    #[error("{tool} needs the argument `{name}`")]
    Missing { tool: String, name: String },
    /// An argument is empty.
    #[error("the argument `{name}` of {tool} is empty")]
    Empty { tool: String, name: String },
    /// An argument contains a NUL byte.
    #[error("the argument `{name}` of {tool} contains a NUL byte")]
    Nul { tool: String, name: String },
    /// An argument is something else than a string.
    #[error("the argument `{name}` of {tool} must be a string{}", found.map(|kind| format!(", not {kind}")).unwrap_or_default())]
    NotAString {
        tool: String,
        name: String,
        /// The type of the value, if it is reported.
        found: Option<&'static str>,
    },
    /// The path of a tool is not one.
    #[error("{tool}: {why}")]
    Path { tool: String, why: NotAPath },
    /// The folder of a glob is not one.
    #[error(transparent)]
    Folder(#[from] NotAPath),
}

fn subject(question: &CallRequest<'_>, primary: Option<&str>) -> Result<CallSubject, InvalidCall> {
    let (tool, args) = (question.tool, question.args);
    let of = |name: &str| (tool.to_owned(), name.to_owned());
    if !args.is_object() && !args.is_null() {
        return Err(InvalidCall::NotAnObject { tool: tool.to_owned() });
    }
    if let Some(name) = primary {
        let optional = tool == "List";
        match args.get(name) {
            None | Some(Value::Null) if optional => {}
            None | Some(Value::Null) => {
                let (tool, name) = of(name);
                return Err(InvalidCall::Missing { tool, name });
            }
            Some(Value::String(text)) if text.trim().is_empty() => {
                let (tool, name) = of(name);
                return Err(InvalidCall::Empty { tool, name });
            }
            Some(Value::String(text)) if text.contains('\0') => {
                let (tool, name) = of(name);
                return Err(InvalidCall::Nul { tool, name });
            }
            Some(Value::String(_)) => {}
            Some(other) => {
                let (tool, name) = of(name);
                return Err(InvalidCall::NotAString { tool, name, found: Some(kind(other)) });
            }
        }
    }
    if tool == SHELL_TOOL {
        let command = args.get("command").and_then(Value::as_str).unwrap_or_default();
        return Ok(CallSubject::Shell(analyse(command)));
    }
    if let Some((key, required)) = path_argument(tool) {
        let text = match args.get(key) {
            Some(Value::String(text)) => text.as_str(),
            None | Some(Value::Null) if !required => ".",
            _ => {
                let (tool, name) = of(key);
                return Err(InvalidCall::NotAString { tool, name, found: None });
            }
        };
        let mut seen = path::resolve_path(text, &question.places())
            .map_err(|why| InvalidCall::Path { tool: tool.to_owned(), why })?;
        // A glob names the folder that it starts in, which a link or `..` may take elsewhere.
        if tool == "Glob"
            && let Some(pattern) = args.get("pattern").and_then(Value::as_str)
            && let Some(below) = literal_folder(pattern)
        {
            let base = if below.starts_with(['/', '~']) { below } else { format!("{text}/{below}") };
            let more = path::resolve_path(&base, &question.places())?;
            seen.views.extend(more.views);
            seen.forms.extend(more.forms);
            seen.is_inside &= more.is_inside;
            seen.is_strange |= more.is_strange;
        }
        return Ok(CallSubject::File { key, seen });
    }
    Ok(CallSubject::Other)
}

/// Returns the folders that a glob names before its first wildcard, and every `..` in it: one after a
/// wildcard leads out of whatever the wildcard matches.
fn literal_folder(pattern: &str) -> Option<String> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let folders = parts.split_last().map_or(&[][..], |(_, folders)| folders);
    let is_special = |part: &&&str| part.contains(['*', '?', '[', '{', '\\']);
    let mut found: Vec<&str> = folders.iter().take_while(|part| !is_special(part)).copied().collect();
    let rest = parts.get(found.len()..).unwrap_or_default();
    found.extend(rest.iter().filter(|part| part.split('\\').any(|part| part == "..")).map(|_| ".."));
    if found.is_empty() { None } else { Some(format!("{}/", found.join("/"))) }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// One view of a path against one comparison. An allow (`strict`) that is relative reaches only what is inside; a deny or
/// ask that names a folder covers what is in it, and all spellings of a name where the volume takes them for one.
pub(super) fn path_holds(looked: &Looked<'_>, forms: &Forms, strict: bool) -> bool {
    // Only where it would restrict: what allows is compared letter by letter.
    let is_restriction = strict == looked.negated;
    let holds = is_named(looked, forms, strict)
        || is_restriction && is_named_folded(looked.matcher, forms) && forms.ignores_spelling();
    holds != looked.negated
}

fn is_named(looked: &Looked<'_>, forms: &Forms, strict: bool) -> bool {
    let matcher = looked.matcher;
    let text = matcher.text();
    let hits = |form: &str| if strict { matcher.is_match_path(form) } else { matcher.is_match(form) };
    let relative = forms.relative.as_deref().is_some_and(|form| {
        hits(form) || (matches!(looked.matcher, Matcher::Glob { .. }) && hits(&format!("./{form}")))
    });
    let is_absolute = text.trim_start_matches("(?i)").trim_start_matches('^').starts_with('/');
    let absolute = (!strict || is_absolute) && hits(&forms.absolute);
    let home =
        (!strict || text.trim_start_matches('^').starts_with('~')) && forms.home.as_deref().is_some_and(hits);
    let covers = || {
        let in_home = || forms.home.as_deref().is_some_and(|form| matcher.covers_path(form));
        match &forms.relative {
            // A folder above the workspace that happens to have the name of one is not meant.
            Some(form) if !matcher.is_rooted() => {
                let is_glob = matches!(matcher, Matcher::Glob { .. });
                matcher.covers_path(form) || is_glob && matcher.covers_path(&format!("./{form}"))
            }
            _ => matcher.covers_path(&forms.absolute) || in_home(),
        }
    };
    relative || absolute || home || !strict && !looked.negated && covers()
}

/// Whether another spelling of the path would be named, or a folder that it lies in.
fn is_named_folded(matcher: &Matcher, forms: &Forms) -> bool {
    let folded = forms.folded();
    if folded.is_none() && !matcher.is_case_sensitive() {
        return false;
    }
    let forms = folded.as_ref().unwrap_or(forms);
    let covers = |form: &str| matcher.covers_folded(form);
    match &forms.relative {
        Some(form) if !matcher.is_rooted() => {
            let is_glob = matches!(matcher, Matcher::Glob { .. });
            covers(form) || is_glob && covers(&format!("./{form}"))
        }
        _ => covers(&forms.absolute) || forms.home.as_deref().is_some_and(covers),
    }
}

/// True for the tools that change one file.
pub fn is_file_edit(tool: &str) -> bool {
    matches!(tool, "Edit" | "Write")
}

/// True when an edit stays inside the workspace, by its name and by its target, and touches nothing protected.
pub(super) fn edits_inside(question: &CallRequest<'_>) -> bool {
    let Some(text) = question.args.get("file_path").and_then(Value::as_str) else { return false };
    is_file_edit(question.tool)
        && path::resolve_path(text, &question.places()).is_ok_and(|seen| {
            !seen.is_dangling
                && !seen.is_strange
                && seen.protected.is_none()
                && seen.is_inside
                && seen.bare_repository(question.workspace).is_none()
        })
}
