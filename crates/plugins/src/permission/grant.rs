//! The grants that a user may give at a prompt.

use super::evaluate::{CallRequest, SHELL_TOOL, VerdictKind, evaluate, is_file_edit, known_primary};
use super::path;
use super::rules::RuleSet;
use super::tables::TABLES;
use super::typing::INPUT_TOOL;
use aye_core::contract::question::GrantProposal;
use aye_pattern::shell::{
    ProgramWords, Word, analyse, canonical, is_legible, is_transparent, quote, risks, runner_program,
    runs_others, visible,
};
use aye_pattern::{Pattern, escape_glob, is_glob};
use serde_json::{Value, json};
use std::path::Path;

/// The grants that make sense for a call, narrowest first. Empty when nothing may be granted.
pub fn propose_grants(question: &CallRequest<'_>) -> Vec<GrantProposal> {
    let args = question.args;
    let text = |key: &str| args.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if question.tool == SHELL_TOOL {
        return text("command").map(|line| shell(question, line)).unwrap_or_default();
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

/// The rule for exactly the line that is asked about. None if the user would not see what the line says.
pub(super) fn exact_line(question: &CallRequest<'_>) -> Option<String> {
    let line = question.args.get("command").and_then(Value::as_str)?;
    let is_line = question.tool == SHELL_TOOL && !line.is_empty() && is_legible(line);
    is_line.then(|| Pattern::literal(SHELL_TOOL, "command", line).to_string())
}

fn shell(question: &CallRequest<'_>, command: &str) -> Vec<GrantProposal> {
    let Some(pattern) = exact_line(question) else { return Vec::new() };
    let mut proposals = vec![GrantProposal { pattern, text: format!("exactly `{}`", visible(command)) }];
    let analysis = analyse(command);
    let commands = analysis.plain().unwrap_or_default();
    let only = match commands.as_slice() {
        [only] => only.call().filter(|_| only.assignments.is_empty()),
        _ => None,
    };
    // A rule that would not cover this very command, and others like it, is no answer to the question.
    let covers = |proposal: &GrantProposal| {
        let mut alone = RuleSet::new();
        let allows = |rules: &RuleSet, args: &Value| {
            evaluate(rules, &CallRequest { args, ..*question }).decision == VerdictKind::Allow
        };
        let words = only.map(|words| canonical(&words.texts())).unwrap_or_default();
        alone.grant(&proposal.pattern).is_ok()
            && allows(&alone, &json!({ "command": command }))
            && allows(&alone, &json!({ "command": format!("{words} x") }))
    };
    proposals.extend(only.and_then(prefix).filter(covers));
    proposals
}

/// The index of the program that the words before it only start in some way: `npx`, `uv run`, `python3 -m`, `env A=b`.
pub(super) fn started_by(words: ProgramWords<'_>) -> Option<usize> {
    let texts = words.texts();
    let at = match texts.as_slice() {
        [program, "-m", _, ..] if is_python(program) => 2,
        ["node", "--run", _, ..] => 2,
        ["env", rest @ ..] => {
            1 + rest.iter().position(|word| !is_assignment(word)).filter(|count| *count > 0)?
        }
        [_, "compose", ..] => return None,
        _ => runner_program(words.all())?,
    };
    texts.get(at).filter(|word| !word.starts_with('-')).map(|_| at)
}

fn is_python(program: &str) -> bool {
    program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') == "python"
}

fn is_assignment(word: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

/// The index of a program's subcommand, after the options that say where it works.
pub(super) fn subcommand_at(words: ProgramWords<'_>) -> usize {
    let (flags, valued): (&[&str], &[&str]) = match words.name() {
        "make" | "gmake" | "git" | "go" | "ninja" => (&[], &["-C"]),
        "pnpm" => (&["-r", "--recursive", "-w", "--workspace-root"], &["--filter", "-F", "-C", "--dir"]),
        "npm" => (&[], &["--prefix", "-w", "--workspace"]),
        "yarn" => (&[], &["--cwd"]),
        "kubectl" => (&[], &["-n", "--namespace", "--context"]),
        _ => (&[], &[]),
    };
    let texts = words.texts();
    let mut at = 1;
    while let Some(text) = texts.get(at) {
        if valued.contains(text) {
            at += 2;
        } else if flags.contains(text) || words.name() == "cargo" && text.starts_with('+') {
            at += 1;
        } else {
            break;
        }
    }
    at
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

/// The number of leading words after which a rule may allow any others: `program subcommand`, or `program` alone when it
/// is harmless enough; of a runner, with the program that it runs.
pub(super) fn spelled_by_prefix(words: ProgramWords<'_>) -> Option<usize> {
    if let Some(at) = started_by(words) {
        return Some(at + spelled_by_prefix(words.skip_to(at)?)?);
    }
    let is_word = |word: &&Word| {
        let text = &word.text;
        word.is_literal()
            && text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '.' | '/' | '_'))
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.' | '/' | '@' | '+'))
    };
    if TABLES.grants.with_subcommand.contains(words.name()) {
        let at = subcommand_at(words);
        let sub = words.all().get(at).filter(is_word)?;
        // `npm run build`: the script is what runs.
        if has_subject(&sub.text) {
            words.all().get(at + 1).filter(is_word)?;
            return Some(at + 2);
        }
        return Some(at + 1);
    }
    (!is_anything(words.name()) && is_word(&words.program())).then_some(1)
}

/// A rule for the words that say what a command does, with any further ones.
fn prefix(words: ProgramWords<'_>) -> Option<GrantProposal> {
    // A wrapper such as `timeout` follows the rule for what it runs.
    if is_transparent(words.name()) {
        let risk = risks(words.all()).into_iter().find(|risk| risk.executes)?;
        return words.skip_to(risk.index).filter(|_| risk.index > 0).and_then(prefix);
    }
    let texts = words.texts();
    let front = texts.get(..spelled_by_prefix(words)?)?;
    let literal = front.iter().map(|word| pattern_word(word)).collect::<Vec<_>>().join(" ");
    let pattern = Pattern::parse(&format!("{SHELL_TOOL}({literal} *)")).ok()?;
    Some(proposal(&pattern, format!("any `{} …`", visible(&canonical(front)))))
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
    let places = question.places();
    let Ok(seen) = path::resolve_path(text, &places) else { return Vec::new() };
    let (tool, writes) = (question.tool, is_file_edit(question.tool));
    let doing = match tool {
        "Read" => "reading",
        "List" => "listing",
        "Write" => "writing",
        _ => "editing",
    };
    if seen.is_strange || (writes && (seen.is_dangling || seen.protected.is_some())) {
        return Vec::new();
    }
    let Some(forms) = seen.forms.last() else { return Vec::new() };
    let name = forms.relative.clone().unwrap_or_else(|| forms.absolute.clone());
    let mut proposals =
        vec![proposal(&Pattern::literal(tool, key, &name), format!("{doing} `{}`", visible(&name)))];
    let folder =
        Path::new(&name).parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    let (glob, shown) = match folder.as_str() {
        "" if forms.relative.is_some() => ("**".to_owned(), "anything in the workspace".to_owned()),
        "" | "/" => return proposals,
        folder => (format!("{}/**", escape_glob(folder)), format!("anything in `{}/`", visible(folder))),
    };
    let glob = glob.replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(pattern) = Pattern::parse(&format!("{tool}({key} ~ \"{glob}\")")) {
        proposals.push(proposal(&pattern, format!("{doing} {shown}")));
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
