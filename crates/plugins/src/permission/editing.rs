//! A pattern that a user wrote at a question: it must match this very call, and no more than may be granted
//! there.
//!
//! Broader rules belong in a file, where they can be reviewed and come with examples.

use super::evaluate::{
    AskKind, InvalidCall, PreparedCall, SHELL_TOOL, VerdictKind, is_file_edit, known_primary,
};
use super::grant::{exact_line, has_subject, is_anything, started_by, subcommand_at};
use super::opening::FolderRefusal;
use super::path;
use super::protected::protected_name;
use super::rules::{Rule, RuleSet};
use super::tables::TABLES;
use aye_core::contract::judgement::Profile;
use aye_pattern::shell::{ProgramWords, Word, suspicious};
use aye_pattern::{Args, Matcher, PatternError, is_glob};
use std::path::Path;

/// Longer patterns are not read at a prompt.
const MOST: usize = 2_000;

/// The right place for a rule that is too broad for a prompt.
const TO_A_FILE: &str = "such a rule belongs in permissions.yaml";

/// Why a pattern cannot be granted at a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefusal {
    /// The pattern is empty.
    #[error("the pattern is empty")]
    Empty,
    /// It is too long to be read at a prompt.
    #[error("the pattern is longer than {MOST} bytes")]
    TooLong,
    /// It contains what cannot be seen.
    #[error("the pattern contains invisible characters")]
    Invisible,
    /// It is not a pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// It is for another tool.
    #[error("this is a call of {called}, but the pattern is for {named}")]
    OtherTool {
        /// The tool that was called.
        called: String,
        /// The tool of the pattern.
        named: String,
    },
    /// It is for more than one tool.
    #[error("the tool must be written out: {0}(…)")]
    AnyTool(String),
    /// A rule is stronger than any grant.
    #[error("{0}: no grant overrides that")]
    Overruled(String),
    /// It means the call, and more is needed.
    #[error("it does not cover this call: {0}")]
    NotCovered(String),
    /// It does not mean the call, and what happens without it.
    #[error("it does not match this call: {0}")]
    NotMatched(String),
    /// Something else allows the call.
    #[error("it does not match this call")]
    NotTheCall,
    /// It binds nothing.
    #[error("it would allow any call of {tool}; name {name}, {TO_A_FILE}")]
    AnyCall {
        tool: String,
        /// The argument that must be named.
        name: &'static str,
    },
    /// It does not name the program.
    #[error("the program name must be written out, followed by a space; {TO_A_FILE}")]
    AnyProgram,
    /// The arguments decide what the program runs.
    #[error("`{0}` with arbitrary arguments can do anything; write the whole command, or {TO_A_FILE}")]
    AnyArguments(String),
    /// It does not name a subcommand.
    #[error("name a subcommand of `{0}`, such as `Bash({0} status *)`; {TO_A_FILE}")]
    AnySubcommand(String),
    /// The flags come before the subcommand.
    #[error("name a subcommand of `{0}` before its flags; {TO_A_FILE}")]
    FlagsFirst(String),
    /// The subcommand is as broad as a program.
    #[error("name an argument of `{program} {subcommand}`; {TO_A_FILE}")]
    AnySubject { program: String, subcommand: String },
    /// It is for a protected file.
    #[error("`{0}` is protected: {TO_A_FILE}")]
    Protected(String),
    /// It reaches too much outside of the project.
    #[error("it is too broad outside the project; name a folder, or {TO_A_FILE}")]
    Outside,
    /// It does not name the host.
    #[error("the host must be written out, such as `https://example.com/*`; {TO_A_FILE}")]
    AnyHost,
    /// The call itself makes no sense.
    #[error(transparent)]
    Call(#[from] InvalidCall),
    /// It opens a folder that is not opened.
    #[error(transparent)]
    Folder(#[from] FolderRefusal),
}

/// Reads a pattern that is to be granted at the question about a call.
///
/// # Errors
/// The reason it cannot be granted: it is not a pattern, does not match the call, is beaten by a rule, or is
/// broader than what may be granted at a question.
pub fn check_grant(call: &PreparedCall<'_>, rules: &RuleSet, text: &str) -> Result<Rule, GrantRefusal> {
    check_grant_in(call, rules, text, None)
}

/// The same for a grant that names a profile.
///
/// # Errors
/// The same.
pub fn check_grant_in(
    call: &PreparedCall<'_>,
    rules: &RuleSet,
    text: &str,
    sandbox: Option<Profile>,
) -> Result<Rule, GrantRefusal> {
    let text = text.trim();
    if text.is_empty() {
        return Err(GrantRefusal::Empty);
    }
    // The line that was asked about is shown in full above the pattern, whatever its length and lines.
    let is_this_line = exact_line(&call.question).is_some_and(|exact| exact == text);
    if text.len() > MOST && !is_this_line {
        return Err(GrantRefusal::TooLong);
    }
    if text.chars().any(|c| c == '\n' && !is_this_line || suspicious(c).is_some()) {
        return Err(GrantRefusal::Invisible);
    }
    let mut rule = Rule::granted(text)?;
    rule.sandbox = sandbox;
    let tool = call.question.tool;
    match rule.pattern.exact_tool() {
        Some(name) if name == tool => {}
        Some(name) => {
            return Err(GrantRefusal::OtherTool { called: tool.to_owned(), named: name.to_owned() });
        }
        // If the tool's own name contains such characters, the proposed pattern is a literal one.
        None if rule.pattern.to_string() == aye_pattern::Pattern::tool(tool).to_string() => {}
        None => return Err(GrantRefusal::AnyTool(tool.to_owned())),
    }
    narrow_enough(call, &rule)?;
    let verdict = call.verdict_with(rules, &rule);
    match verdict.decision {
        VerdictKind::Allow => {}
        VerdictKind::Deny | VerdictKind::Ask(AskKind::Rule | AskKind::BrokenRules) => {
            return Err(GrantRefusal::Overruled(verdict.why));
        }
        VerdictKind::Ask(_) | VerdictKind::Error if call.is_matched_by(&rule) => {
            return Err(GrantRefusal::NotCovered(verdict.why));
        }
        VerdictKind::Ask(_) | VerdictKind::Error => return Err(GrantRefusal::NotMatched(verdict.why)),
    }
    // Something else may allow the call, so check that the grant itself matches it.
    if call.is_matched_by(&rule) { Ok(rule) } else { Err(GrantRefusal::NotTheCall) }
}

/// The comparisons of a pattern that bind the tool's main argument. None: it binds nothing.
fn bounds<'r>(rule: &'r Rule, key: &str) -> Vec<&'r Matcher> {
    let all = match rule.pattern.args() {
        Args::Any => Vec::new(),
        Args::Primary(matcher) => vec![matcher],
        Args::All(conditions) => conditions
            .iter()
            .filter(|condition| condition.path.single_key() == Some(key) && !condition.negated)
            .map(|condition| &condition.matcher)
            .collect(),
    };
    // A regular expression is found anywhere: it binds less than it looks.
    all.into_iter().filter(|matcher| !matches!(matcher, Matcher::Regex(_))).collect()
}

fn narrow_enough(call: &PreparedCall<'_>, rule: &Rule) -> Result<(), GrantRefusal> {
    let tool = call.question.tool;
    if tool == SHELL_TOOL {
        return one_of(&bounds(rule, "command"), SHELL_TOOL, "`Bash(program subcommand *)`", command);
    }
    if is_file_edit(tool) || matches!(tool, "Read" | "List") {
        let key = known_primary(tool).unwrap_or("file_path");
        return one_of(&bounds(rule, key), tool, "a folder", |matcher| file(call, matcher));
    }
    if tool == "WebFetch" {
        return one_of(&bounds(rule, "url"), tool, "a host", url);
    }
    Ok(())
}

/// One comparison that is narrow enough bounds the whole pattern: all must hold.
fn one_of(
    bounds: &[&Matcher],
    tool: &str,
    name: &'static str,
    check: impl Fn(&Matcher) -> Result<(), GrantRefusal>,
) -> Result<(), GrantRefusal> {
    let mut refused = GrantRefusal::AnyCall { tool: tool.to_owned(), name };
    for matcher in bounds {
        match check(matcher) {
            Ok(()) => return Ok(()),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}

fn command(matcher: &Matcher) -> Result<(), GrantRefusal> {
    let (front, all) = matcher.literal_words();
    // An exact line allows nothing else, even if it cannot be taken apart into words.
    if all || matches!(matcher, Matcher::Exact(_)) {
        return Ok(());
    }
    let front: Vec<Word> = front.iter().map(|text| Word { text: text.clone(), ..Word::default() }).collect();
    names_enough(ProgramWords::of(&front).ok_or(GrantRefusal::AnyProgram)?)
}

/// Checks the words that a pattern spells out, before any others.
fn names_enough(front: ProgramWords<'_>) -> Result<(), GrantRefusal> {
    let program = front.name();
    let name = program.rsplit('/').next().unwrap_or(program);
    // Of a runner, what it runs counts.
    if let Some(inner) = started_by(front).and_then(|at| front.skip_to(at)) {
        return names_enough(inner);
    }
    let has_subcommand = TABLES.grants.with_subcommand.contains(name);
    if !has_subcommand && is_anything(program) {
        return Err(GrantRefusal::AnyArguments(name.to_owned()));
    }
    if has_subcommand {
        let at = subcommand_at(front);
        let Some(sub) = front.all().get(at) else {
            return Err(GrantRefusal::AnySubcommand(name.to_owned()));
        };
        if sub.text.starts_with('-') {
            return Err(GrantRefusal::FlagsFirst(name.to_owned()));
        }
        if has_subject(&sub.text) && front.all().len() < at + 2 {
            let (program, subcommand) = (name.to_owned(), sub.text.clone());
            return Err(GrantRefusal::AnySubject { program, subcommand });
        }
    }
    Ok(())
}

/// The text before the first wildcard, up to the last `/`.
fn literal_folder(glob: &str) -> &str {
    let end = glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len());
    glob[..end].rfind('/').map_or("", |at| &glob[..=at])
}

fn file(call: &PreparedCall<'_>, matcher: &Matcher) -> Result<(), GrantRefusal> {
    let question = &call.question;
    let text = matcher.text();
    if is_file_edit(question.tool)
        && let Some(name) = protected_name(Path::new(text))
    {
        return Err(GrantRefusal::Protected(name));
    }
    let is_exact = matches!(matcher, Matcher::Exact(_)) || !is_glob(text);
    if is_exact {
        return Ok(());
    }
    let folder = literal_folder(text);
    if !text.starts_with(['/', '~']) {
        // A relative allow reaches only what is inside the workspace.
        return if folder.split('/').any(|part| part == "..") { Err(GrantRefusal::Outside) } else { Ok(()) };
    }
    let absolute = match (folder.strip_prefix("~/"), question.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => Path::new(folder).to_path_buf(),
    };
    let absolute = path::normalise(&absolute);
    let is_above = question.home.is_some_and(|home| home.starts_with(&absolute))
        || question.workspace.starts_with(&absolute) && question.workspace != absolute;
    if is_above || absolute.components().count() < 3 || !absolute.is_absolute() {
        Err(GrantRefusal::Outside)
    } else {
        Ok(())
    }
}

fn url(matcher: &Matcher) -> Result<(), GrantRefusal> {
    let text = matcher.text();
    if matches!(matcher, Matcher::Exact(_)) || !is_glob(text) || text.starts_with("domain:[") {
        return Ok(());
    }
    let host = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"));
    let host = host.and_then(|(_, rest)| rest.split_once('/')).map(|(host, _)| host);
    let is_plain = |host: &str| {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':'))
    };
    if host.is_some_and(is_plain) {
        return Ok(());
    }
    Err(GrantRefusal::AnyHost)
}
