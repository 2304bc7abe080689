//! A pattern that a person wrote at a question: it must mean this very call, and not more than may be granted there.
//!
//! Broader rules belong into a file, where they can be read again and come with examples.

use super::evaluate::{AskKind, Decision, Prepared, SHELL_TOOL, is_file_edit, known_primary};
use super::grant::{WITH_SUBCOMMAND, has_subject, is_anything};
use super::path;
use super::protected::protected_name;
use super::rules::{Rule, RuleSet};
use aye_core::contract::judgement::Profile;
use aye_pattern::shell::suspicious;
use aye_pattern::{Args, Matcher, is_glob};
use std::path::Path;

/// Longer patterns are not read at a prompt.
const MOST: usize = 2_000;

/// Where a rule that is too broad for a prompt belongs.
const TO_A_FILE: &str = "such a rule belongs in permissions.yaml";

/// Reads a pattern that is to be granted at the question about a call.
///
/// # Errors
/// Why it cannot be: it is no pattern, does not match the call, is beaten by a rule, or is broader than what may be
/// granted at a question. A sentence for the person.
pub fn check_grant(call: &Prepared<'_>, rules: &RuleSet, text: &str) -> Result<Rule, String> {
    check_grant_in(call, rules, text, None)
}

/// The same for a grant that names a profile.
///
/// # Errors
/// The same.
pub fn check_grant_in(
    call: &Prepared<'_>,
    rules: &RuleSet,
    text: &str,
    sandbox: Option<Profile>,
) -> Result<Rule, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("the pattern is empty".to_owned());
    }
    if text.len() > MOST {
        return Err(format!("the pattern is longer than {MOST} bytes"));
    }
    if text.chars().any(|c| c == '\n' || suspicious(c).is_some()) {
        return Err("the pattern contains invisible characters".to_owned());
    }
    let mut rule = Rule::granted(text).map_err(|error| error.to_string())?;
    rule.sandbox = sandbox;
    let tool = call.question.tool;
    match rule.pattern.exact_tool() {
        Some(name) if name == tool => {}
        Some(name) => return Err(format!("this is a call of {tool}, but the pattern is for {name}")),
        // A pattern whose tool's own name holds such characters is a literal one when it was proposed.
        None if rule.pattern.to_string() == aye_pattern::Pattern::tool(tool).to_string() => {}
        None => return Err(format!("the tool must be written out: {tool}(…)")),
    }
    narrow_enough(call, &rule)?;
    let verdict = call.verdict_with(rules, &rule);
    match verdict.decision {
        Decision::Allow => {}
        Decision::Deny => return Err(format!("{}: no grant overrides that", verdict.why)),
        Decision::Ask(AskKind::Rule | AskKind::BrokenRules) => {
            return Err(format!("{}: no grant overrides that", verdict.why));
        }
        Decision::Ask(_) | Decision::Error => {
            let what = if call.is_matched_by(&rule) {
                "it does not cover this call"
            } else {
                "it does not match this call"
            };
            return Err(format!("{what}: {}", verdict.why));
        }
    }
    // Whatever else allows it: the grant itself has to mean the call.
    if call.is_matched_by(&rule) { Ok(rule) } else { Err("it does not match this call".to_owned()) }
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

fn narrow_enough(call: &Prepared<'_>, rule: &Rule) -> Result<(), String> {
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
    name: &str,
    check: impl Fn(&Matcher) -> Result<(), String>,
) -> Result<(), String> {
    let mut refused = format!("it would allow any call of {tool}; name {name}, {TO_A_FILE}");
    for matcher in bounds {
        match check(matcher) {
            Ok(()) => return Ok(()),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}

fn command(matcher: &Matcher) -> Result<(), String> {
    let (front, all) = matcher.literal_words();
    if all {
        return Ok(());
    }
    let Some(program) = front.first() else {
        return Err(format!("the program name must be written out, followed by a space; {TO_A_FILE}"));
    };
    let name = program.rsplit('/').next().unwrap_or(program);
    let has_subcommand = WITH_SUBCOMMAND.contains(&name);
    if !has_subcommand && is_anything(program) {
        return Err(format!(
            "`{name}` with arbitrary arguments can do anything; write the whole command, or {TO_A_FILE}"
        ));
    }
    if has_subcommand {
        let Some(sub) = front.get(1) else {
            return Err(format!(
                "name a subcommand of `{name}`, such as `Bash({name} status *)`; {TO_A_FILE}"
            ));
        };
        if sub.starts_with('-') {
            return Err(format!("name a subcommand of `{name}` before its flags; {TO_A_FILE}"));
        }
        if has_subject(sub) && front.len() < 3 {
            return Err(format!("name an argument of `{name} {sub}`; {TO_A_FILE}"));
        }
    }
    Ok(())
}

/// The text before the first wildcard, up to the last `/`.
fn literal_folder(glob: &str) -> &str {
    let end = glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len());
    glob[..end].rfind('/').map_or("", |at| &glob[..=at])
}

fn file(call: &Prepared<'_>, matcher: &Matcher) -> Result<(), String> {
    let question = &call.question;
    let text = matcher.text();
    if is_file_edit(question.tool)
        && let Some(name) = protected_name(Path::new(text))
    {
        return Err(format!("`{name}` is protected: {TO_A_FILE}"));
    }
    let is_exact = matches!(matcher, Matcher::Exact(_)) || !is_glob(text);
    if is_exact {
        return Ok(());
    }
    let folder = literal_folder(text);
    if !text.starts_with(['/', '~']) {
        // A relative allow reaches only what is inside the workspace.
        return if folder.split('/').any(|part| part == "..") { Err(outside()) } else { Ok(()) };
    }
    let absolute = match (folder.strip_prefix("~/"), question.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => Path::new(folder).to_path_buf(),
    };
    let absolute = path::normalise(&absolute);
    let is_above = question.home.is_some_and(|home| home.starts_with(&absolute))
        || question.workspace.starts_with(&absolute) && question.workspace != absolute;
    if is_above || absolute.components().count() < 3 || !absolute.is_absolute() {
        Err(outside())
    } else {
        Ok(())
    }
}

fn outside() -> String {
    format!("it is too broad outside the project; name a folder, or {TO_A_FILE}")
}

fn url(matcher: &Matcher) -> Result<(), String> {
    let text = matcher.text();
    if matches!(matcher, Matcher::Exact(_)) || !is_glob(text) {
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
    Err(format!("the host must be written out, such as `https://example.com/*`; {TO_A_FILE}"))
}
