//! The particulars of git: global flags, aliases, and options that run programs or write files.

use super::risk::RiskyWord;
use super::tables::GIT;
use super::unwrap::Inner;
use super::{Word, tail};

/// The index of the word after git's global flags.
pub(super) fn skip_global_flags(words: &[Word]) -> usize {
    let mut i = 1;
    while let Some(word) = words.get(i).filter(|word| word.text.starts_with('-')) {
        i += if GIT.valued.contains(&word.text) { 2 } else { 1 };
    }
    i
}

fn subcommand(words: &[Word]) -> Option<(usize, &str)> {
    let at = skip_global_flags(words);
    words.get(at).map(|word| (at, word.text.as_str()))
}

/// Commands inside a git command.
pub(super) fn inner(words: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    let join = |from: usize| {
        let rest = words.get(from..).unwrap_or_default();
        let text = rest.iter().map(|w| w.text.as_str()).collect::<Vec<_>>().join(" ");
        Word { text, has_holes: rest.iter().any(|w| !w.is_known()), ..Word::default() }
    };
    if let Some((at, command)) = subcommand(words) {
        let sub = words.get(at + 1).map_or("", |word| word.text.as_str());
        match (command, sub) {
            ("bisect", "run") => found.push(Inner::Words(tail(words, at + 2).to_vec())),
            ("submodule", _) => {
                if let Some(each) = words.iter().position(|word| word.text == "foreach") {
                    let mut rest = words.iter().enumerate().skip(each + 1);
                    let start = rest.find(|(_, word)| !word.text.starts_with('-'));
                    found.extend(start.map(|(start, _)| Inner::Text(join(start))));
                }
            }
            ("rebase", _) => {
                for (i, word) in words.iter().enumerate().skip(at) {
                    let text = word.text.as_str();
                    if let Some(text) = text.strip_prefix("--exec=").or_else(|| text.strip_prefix("-x")) {
                        let glued =
                            (!text.is_empty()).then(|| Word { text: text.to_owned(), ..word.clone() });
                        found.extend(glued.or_else(|| words.get(i + 1).cloned()).map(Inner::Text));
                    } else if text == "--exec" {
                        found.extend(words.get(i + 1).cloned().map(Inner::Text));
                    }
                }
            }
            _ => {}
        }
        if words.get(at).is_some_and(|word| !word.is_known()) {
            found.push(Inner::Unsure("only the shell knows which git command runs".into()));
        }
    }
    for word in words.iter().skip(1) {
        // `-c alias.x='!…'` and `--config-env` name a program in a setting.
        if let Some((_, text)) = word.text.split_once("=!").filter(|_| word.text.starts_with("alias.")) {
            found.push(Inner::Text(Word { text: text.to_owned(), ..word.clone() }));
        }
    }
    if let Some(risk) = risks(words).into_iter().find(|risk| risk.executes) {
        found.push(Inner::Unsure(risk.why));
    }
    found
}

/// Returns the words of a git command that run a program, write a file, or access another repository.
pub(super) fn risks(words: &[Word]) -> Vec<RiskyWord> {
    let mut risks = Vec::new();
    let at = skip_global_flags(words).min(words.len());
    let mut before = None;
    for (i, word) in words.iter().enumerate().take(at).skip(1) {
        let text = word.text.as_str();
        let is_value =
            before.replace(text).is_some_and(|flag| GIT.valued.contains(flag)) && !text.starts_with('-');
        if !is_value && !GIT.harmless.contains(text) {
            risks.push(RiskyWord::runs(i, i + 1, format!("git's global flag `{text}`")));
        }
    }
    let Some((_, command)) = subcommand(words) else { return risks };
    if GIT.runners.contains(command) {
        risks.push(RiskyWord::runs(at, usize::MAX, format!("`git {command}` runs other programs")));
    } else if !GIT.commands.contains(command) {
        risks.push(RiskyWord::runs(at, at, format!("`git {command}` may be an alias")));
    }
    let sub = words.get(at + 1).map_or("", |word| word.text.as_str());
    match (command, sub) {
        ("bisect", "run" | "visualize" | "view") | ("submodule", "foreach" | "add" | "update") => {
            risks.push(RiskyWord::runs(
                at + 1,
                usize::MAX,
                format!("`git {command} {sub}` runs other programs"),
            ));
        }
        ("config", _) if !config_only_reads(tail(words, at + 1)) => {
            risks.push(RiskyWord::runs(at, usize::MAX, "`git config` can name programs to run".into()));
        }
        ("maintenance", "start" | "register") => {
            risks.push(RiskyWord::runs(
                at + 1,
                at + 1,
                format!("`git maintenance {sub}` changes the user's settings"),
            ));
        }
        _ => {}
    }
    for (i, word) in words.iter().enumerate().skip(at + 1) {
        let text = word.text.as_str();
        if text.contains("ext::") || text.contains("fd::") {
            risks.push(RiskyWord::runs(i, i, "a git URL that runs a command".into()));
        }
        if let Some(long) = text.strip_prefix("--").filter(|long| !long.is_empty()) {
            let name = long.split('=').next().unwrap_or(long);
            if GIT.exact.contains(name) {
                continue;
            }
            if let Some(flag) = GIT.long.starting_with(name) {
                let (executes, why) = (!GIT.long_writes.contains(flag), format!("git's `--{flag}`"));
                risks.push(RiskyWord { index: i, through: i + 1, executes, why });
            }
        } else if text.starts_with('-') && risky_short(command, text) {
            risks.push(RiskyWord::runs(i, i + 1, format!("`{text}` of `git {command}`")));
        }
    }
    risks
}

fn risky_short(command: &str, text: &str) -> bool {
    let letters = &text[1..];
    match command {
        "grep" => letters.contains('O'),
        "rebase" => letters.contains('x') && !letters.starts_with('X'),
        "clone" => letters.contains(['u', 'c']),
        "fetch" | "pull" | "ls-remote" => letters.contains('u') && command == "ls-remote",
        "format-patch" | "archive" => letters.contains('o'),
        "merge" | "cherry-pick" | "revert" => letters.starts_with('s') && letters != "s",
        _ => false,
    }
}

fn config_only_reads(words: &[Word]) -> bool {
    words.first().is_some_and(|word| {
        matches!(
            word.text.as_str(),
            "--get"
                | "--get-all"
                | "--get-regexp"
                | "--list"
                | "-l"
                | "get"
                | "list"
                | "--show-origin"
                | "--get-urlmatch"
        )
    }) && !words.iter().any(|word| {
        let text = word.text.as_str();
        [
            "--add",
            "--unset",
            "--replace-all",
            "--edit",
            "-e",
            "--rename-section",
            "--remove-section",
            "--file",
            "-f",
        ]
        .iter()
        .any(|flag| text.starts_with(flag))
    })
}
