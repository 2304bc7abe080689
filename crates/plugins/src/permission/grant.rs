//! The grants that a user may give at a prompt.

use super::evaluate::{CallRequest, SHELL_TOOL, is_file_edit, known_primary};
use super::path::{self, PathRoots};
use super::tables::TABLES;
use super::typing::INPUT_TOOL;
use aye_core::contract::question::GrantProposal;
use aye_pattern::shell::{analyse, canonical, quote, risks, runs_others, visible};
use aye_pattern::{Pattern, escape_glob, is_glob};
use serde_json::Value;
use std::path::Path;

/// The grants that make sense for a call, narrowest first. Empty when nothing may be granted.
pub fn propose_grants(question: &CallRequest<'_>) -> Vec<GrantProposal> {
    let args = question.args;
    let text = |key: &str| args.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if question.tool == SHELL_TOOL {
        return text("command").map(shell).unwrap_or_default();
    }
    if is_file_edit(question.tool) || matches!(question.tool, "Read" | "List") {
        let key = known_primary(question.tool).unwrap_or("file_path");
        return text(key).map(|path| file(question, key, path)).unwrap_or_default();
    }
    if question.tool == "WebFetch" {
        return text("url").map(url).unwrap_or_default();
    }
    if question.tool == INPUT_TOOL {
        let typed = |id: &str| {
            let pattern = Pattern::literal(INPUT_TOOL, "bash_id", id);
            vec![proposal(&pattern, format!("all input to {}", visible(id)))]
        };
        return text("bash_id").map(typed).unwrap_or_default();
    }
    vec![GrantProposal {
        pattern: Pattern::tool(question.tool).to_string(),
        text: format!("every call of {}", visible(question.tool)),
    }]
}

fn proposal(pattern: &Pattern, text: String) -> GrantProposal {
    GrantProposal { pattern: pattern.to_string(), text }
}

fn shell(command: &str) -> Vec<GrantProposal> {
    let analysis = analyse(command);
    let Ok(commands) = analysis.plain() else { return Vec::new() };
    if analysis.undecided.is_some() || commands.iter().any(|command| !command.assignments.is_empty()) {
        return Vec::new();
    }
    if commands.iter().any(|command| {
        command.words.iter().any(|word| !word.is_literal())
            || risks(&command.words).iter().any(|risk| risk.executes)
    }) {
        return Vec::new();
    }
    let mut proposals = vec![proposal(
        &Pattern::literal(SHELL_TOOL, "command", command),
        format!("exactly `{}`", visible(command)),
    )];
    let [only] = commands.as_slice() else { return proposals };
    let words = only.texts();
    if !risks(&only.words).is_empty() {
        return proposals;
    }
    proposals.extend(prefix(&words));
    proposals
}

/// Returns whether a subcommand is meaningless without the word after it.
pub(super) fn has_subject(subcommand: &str) -> bool {
    matches!(subcommand, "run" | "compose" | "tool" | "remote" | "stash" | "worktree" | "x")
}

/// True when a rule over any arguments of the program would be a rule over anything.
pub(super) fn is_anything(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    TABLES.grants.anything.contains(name) || runs_others(name)
}

/// The rule that would allow a command with any further words, for a reason; nothing where no such rule makes sense.
pub(super) fn rule_for_prefix(words: &[&str]) -> Option<String> {
    prefix(words).map(|proposal| proposal.pattern)
}

/// `program subcommand *`, or `program *` for programs that are harmless enough.
fn prefix(words: &[&str]) -> Option<GrantProposal> {
    let program = *words.first()?;
    let is_word = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.'))
    };
    let mut length = 1;
    if TABLES.grants.with_subcommand.contains(program) {
        let sub = words.get(1).filter(|sub| is_word(sub))?;
        length = 2;
        // `npm run build`: the script is what runs.
        if has_subject(sub) {
            words.get(2).filter(|word| is_word(word))?;
            length = 3;
        }
    } else if is_anything(program) {
        return None;
    }
    let literal = words[..length].iter().map(|word| pattern_word(word)).collect::<Vec<_>>().join(" ");
    let shown = canonical(&words[..length]);
    let pattern = Pattern::parse(&format!("{SHELL_TOOL}({literal} *)")).ok()?;
    Some(proposal(&pattern, format!("`{}` with any further arguments", visible(&shown))))
}

/// A word of a command as a word of a pattern.
pub(super) fn pattern_word(word: &str) -> String {
    if word.is_empty() {
        return "''".to_owned();
    }
    let mut out = String::new();
    for c in escape_glob(word).chars() {
        if matches!(c, ' ' | '\t' | '(' | ')' | '"' | '\'') {
            out.push('\\');
        }
        out.push(c);
    }
    debug_assert!(is_glob(word) || !out.is_empty(), "{}", quote(word));
    out
}

fn file(question: &CallRequest<'_>, key: &str, text: &str) -> Vec<GrantProposal> {
    let places = PathRoots { cwd: question.cwd, workspace: question.workspace, home: question.home };
    let Ok(seen) = path::look(text, &places) else { return Vec::new() };
    let (tool, writes) = (question.tool, is_file_edit(question.tool));
    if seen.is_strange || (writes && (seen.is_dangling || seen.protected.is_some())) {
        return Vec::new();
    }
    let Some(forms) = seen.forms.last() else { return Vec::new() };
    let name = forms.relative.clone().unwrap_or_else(|| forms.absolute.clone());
    let mut proposals =
        vec![proposal(&Pattern::literal(tool, key, &name), format!("{tool} of `{}`", visible(&name)))];
    let folder =
        Path::new(&name).parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    let (glob, shown) = match folder.as_str() {
        "" if forms.relative.is_some() => ("**".to_owned(), "anything in the workspace".to_owned()),
        "" | "/" => return proposals,
        folder => (format!("{}/**", escape_glob(folder)), format!("anything in `{}/`", visible(folder))),
    };
    let glob = glob.replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(pattern) = Pattern::parse(&format!("{tool}({key} ~ \"{glob}\")")) {
        proposals.push(proposal(&pattern, format!("{tool} of {shown}")));
    }
    proposals
}

fn url(url: &str) -> Vec<GrantProposal> {
    let mut proposals =
        vec![proposal(&Pattern::literal("WebFetch", "url", url), format!("exactly `{}`", visible(url)))];
    let Some((scheme, rest)) = url.split_once("://") else { return proposals };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A name before `@` would make the host something else than it looks.
    if matches!(scheme, "http" | "https")
        && !host.is_empty()
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':'))
        && let Ok(pattern) = Pattern::parse(&format!("WebFetch(url ~ \"{scheme}://{host}/*\")"))
    {
        proposals.push(proposal(&pattern, format!("everything at `{scheme}://{host}/`")));
    }
    proposals
}
