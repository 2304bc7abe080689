//! The effect of a command line, coarsely: a word for lists and for the user's eye. Nothing is allowed
//! because of it, so it may be a guess; an unknown effect counts as running a program.

use super::tables::{GIT, PROGRAMS};
use super::{Analysis, Simple, base_name, git, only_reads, risks, tail};
use aye_core::contract::judgement::Risk as Effect;

/// Returns the effect of the line: the worst of its commands.
pub fn effect(analysis: &Analysis) -> Effect {
    let programs = || analysis.commands.iter().filter(|command| !command.words.is_empty());
    let names = || programs().filter_map(Simple::program);
    let fetched_and_run = names().any(|name| matches!(name, "curl" | "wget" | "aria2c"))
        && names().any(|name| PROGRAMS.shells.contains(name));
    if analysis.overwrites || fetched_and_run || programs().any(destroys) {
        return Effect::Destroys;
    }
    let is_plain = analysis.undecided.is_none() && analysis.plain().is_ok() && !analysis.commands.is_empty();
    if !is_plain {
        // The effect is unknown: it may be more than network access.
        return Effect::Runs;
    }
    analysis.commands.iter().map(of_command).max().unwrap_or(Effect::Runs)
}

/// Returns whether a command of the line deletes files.
pub fn deletes_files(analysis: &Analysis) -> bool {
    let programs = analysis.commands.iter().filter(|command| !command.words.is_empty());
    programs.filter_map(|command| Some((command, command.program()?))).any(|(command, program)| {
        let texts = command.texts();
        let has = |words: &[&str]| texts.iter().any(|word| words.contains(word));
        match program {
            "find" => has(&["-delete"]),
            "git" => {
                let sub = texts.get(git::skip_global_flags(&command.words)).copied();
                match sub {
                    Some("clean") => !has(&["-n", "--dry-run"]),
                    Some("rm") => !has(&["-n", "--dry-run", "--cached"]),
                    _ => false,
                }
            }
            other => PROGRAMS.deleters.contains(other),
        }
    })
}

fn of_command(command: &Simple) -> Effect {
    let Some(program) = command.program().filter(|_| command.assignments.is_empty()) else {
        return Effect::Runs;
    };
    // A program in a folder of the project is not the `ls` that users expect.
    let is_plain_name = command.words.first().is_some_and(|word| word.text == program);
    let is_risky = risks(&command.words).iter().any(|risk| risk.executes);
    if !is_plain_name || is_risky {
        return Effect::Runs;
    }
    if program == "git" {
        return of_git(command);
    }
    if PROGRAMS.network.contains(program) {
        return Effect::Network;
    }
    if only_reads(program) || PROGRAMS.lookers.contains(program) {
        return Effect::Reads;
    }
    Effect::Runs
}

fn of_git(command: &Simple) -> Effect {
    let at = git::skip_global_flags(&command.words);
    let texts = command.texts();
    let Some(sub) = texts.get(at).copied() else {
        return if texts.get(1) == Some(&"--version") { Effect::Reads } else { Effect::Runs };
    };
    let rest = tail(&texts, at + 1);
    let lists = match sub {
        "branch" => rest.iter().all(|word| {
            matches!(*word, "-a" | "-r" | "-v" | "-vv" | "--list" | "--all" | "--show-current" | "--remotes")
        }),
        "tag" => rest.first().is_none_or(|word| matches!(*word, "-l" | "--list")),
        "remote" => rest.first().is_none_or(|word| matches!(*word, "-v" | "--verbose" | "get-url")),
        "stash" | "worktree" => rest.first().is_some_and(|word| matches!(*word, "list" | "show")),
        "reflog" => rest.first().is_none_or(|word| *word == "show" || word.starts_with('-')),
        "config" => {
            rest.first().is_some_and(|word| word.starts_with("--get") || matches!(*word, "--list" | "-l"))
        }
        _ => GIT.reads.contains(sub),
    };
    if lists {
        Effect::Reads
    } else if GIT.network.contains(sub) {
        Effect::Network
    } else {
        Effect::Runs
    }
}

/// True when a command takes away, overwrites, stops something or raises rights.
fn destroys(command: &Simple) -> bool {
    let Some(first) = command.words.first() else { return false };
    let program = base_name(&first.text);
    let texts = command.texts();
    let rest = || texts.iter().skip(1).copied();
    if PROGRAMS.destroyers.contains(program) || program.starts_with("mkfs") {
        return true;
    }
    if PROGRAMS.destroying.get(program).is_some_and(|words| rest().any(|word| words.contains(word))) {
        return true;
    }
    // Flags that write into a file: `sort -o`, `sed -i`, `find -delete`, `curl -o`.
    if risks(&command.words).iter().any(|risk| !risk.executes) {
        return true;
    }
    match program {
        "git" => git_destroys(command),
        "chmod" | "chown" | "chgrp" => {
            rest().any(|word| word == "--recursive" || is_short(word, 'R'))
                || program == "chmod" && rest().find(|word| !word.starts_with('-')).is_some_and(sets_user_id)
        }
        "rsync" => rest().any(|word| word.starts_with("--del") || word.starts_with("--remove")),
        "ln" | "cp" | "install" => rest().any(|word| word == "--force" || is_short(word, 'f')),
        _ => false,
    }
}

/// Returns whether a mode of chmod lets others run the file as its owner.
fn sets_user_id(mode: &str) -> bool {
    let is_number = mode.chars().all(|c| c.is_ascii_digit());
    if is_number { mode.len() > 3 && !mode.starts_with('0') } else { mode.contains('s') }
}

fn is_short(word: &str, letter: char) -> bool {
    word.strip_prefix('-').is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

fn git_destroys(command: &Simple) -> bool {
    let at = git::skip_global_flags(&command.words);
    let texts = command.texts();
    let Some(sub) = texts.get(at).copied() else { return false };
    let rest = tail(&texts, at + 1);
    let has = |words: &[&str]| rest.iter().any(|word| words.contains(word));
    let short = |letter: char| rest.iter().any(|word| is_short(word, letter));
    match sub {
        "push" => {
            short('f')
                || short('d')
                || rest.iter().any(|word| {
                    word.starts_with("--force")
                        || word.starts_with("--mirror")
                        || word.starts_with("--delete")
                        || word.starts_with("--prune")
                        || word.starts_with(['+', ':'])
                })
        }
        "reset" => has(&["--hard", "--merge"]),
        "clean" => !has(&["-n", "--dry-run"]),
        "checkout" => has(&["--", ".", "-f", "--force"]) || short('f'),
        "restore" | "filter-branch" | "rm" | "prune" => true,
        "branch" => short('D') || short('d') || has(&["--delete"]),
        "tag" => short('d') || short('f') || has(&["--delete", "--force"]),
        "stash" => has(&["drop", "clear"]),
        "reflog" => has(&["expire", "delete"]),
        "update-ref" => short('d'),
        "worktree" => has(&["remove", "prune"]),
        "remote" => has(&["remove", "rm"]),
        "switch" => short('f') || has(&["--force", "--discard-changes"]),
        "gc" => rest.iter().any(|word| word.starts_with("--prune")),
        _ => false,
    }
}
