//! The effect of a command line, coarsely: a word for lists and for the user's eye. Nothing is allowed
//! because of it, so it may be a guess; an unknown effect counts as running a program.

use super::tables::{GIT, PROGRAMS};
use super::{Analysis, Simple, base_name, git, only_reads, risks, tail};
use aye_core::contract::judgement::Risk as Effect;
use aye_core::contract::question::Danger;

/// Returns the effect of the line: the worst of its commands.
pub fn effect(analysis: &Analysis) -> Effect {
    if analysis.overwrites || fetched_and_run(analysis).is_some() || harms(analysis).next().is_some() {
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
    harms(analysis).any(|(harm, _)| harm == Harm::DeletesFiles)
}

/// Returns what is dangerous about the line, the first command first; nothing for most lines.
pub fn danger(analysis: &Analysis) -> Danger {
    let mut danger = Danger::default();
    for (harm, words) in harms(analysis) {
        if let Some(what) = harm.words() {
            danger.add(what, words);
        }
    }
    if let Some(shell) = fetched_and_run(analysis) {
        danger.add("runs what it downloads", [format!("| {shell}"), shell.to_owned()]);
    }
    danger
}

/// The shell of a line that also downloads something.
fn fetched_and_run(analysis: &Analysis) -> Option<&str> {
    let names = || analysis.commands.iter().filter_map(Simple::program);
    names()
        .any(|name| matches!(name, "curl" | "wget" | "aria2c"))
        .then(|| names().find(|name| PROGRAMS.shells.contains(name)))
        .flatten()
}

/// The harm that a command can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    DeletesFiles,
    DeletesBranches,
    DeletesOther,
    ForcePushes,
    RewritesHistory,
    DiscardsChanges,
    WritesDisks,
    RunsAsRoot,
    /// It overwrites, publishes or stops something. A user knows that of `mv` and `kill`, and need not be warned.
    Other,
}

impl Harm {
    /// The words of a warning; `None` for what needs none.
    fn words(self) -> Option<&'static str> {
        Some(match self {
            Harm::DeletesFiles => "deletes files",
            Harm::DeletesBranches => "deletes branches or tags",
            Harm::DeletesOther => "deletes resources",
            Harm::ForcePushes => "force-pushes",
            Harm::RewritesHistory => "rewrites history",
            Harm::DiscardsChanges => "discards changes",
            Harm::WritesDisks => "writes to a disk",
            Harm::RunsAsRoot => "runs as root",
            Harm::Other => return None,
        })
    }
}

/// The commands that can do harm, each with the words that make it so.
fn harms(analysis: &Analysis) -> impl Iterator<Item = (Harm, Vec<String>)> + '_ {
    analysis.commands.iter().filter_map(harm)
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

/// Returns the harm that a command can do, and the words that make it so.
fn harm(command: &Simple) -> Option<(Harm, Vec<String>)> {
    let program = base_name(&command.words.first()?.text);
    let texts = command.texts();
    let rest = || texts.iter().skip(1).copied();
    let name = || texts.iter().take(1).map(|word| (*word).to_owned());
    let options = || rest().filter(|word| word.starts_with('-')).map(str::to_owned);
    if PROGRAMS.deleters.contains(program) {
        return Some((Harm::DeletesFiles, name().chain(options()).collect()));
    }
    let harm = if PROGRAMS.as_root.contains(program) {
        Some(Harm::RunsAsRoot)
    } else if PROGRAMS.disks.contains(program) || program.starts_with("mkfs") {
        Some(Harm::WritesDisks)
    } else if PROGRAMS.destroyers.contains(program) {
        Some(Harm::Other)
    } else {
        None
    };
    if let Some(harm) = harm {
        return Some((harm, name().collect()));
    }
    for (table, harm) in [(&PROGRAMS.deleting, Harm::DeletesOther), (&PROGRAMS.destroying, Harm::Other)] {
        let found = table.get(program).and_then(|words| rest().find(|word| words.contains(word)));
        if let Some(word) = found {
            return Some((harm, vec![word.to_owned()]));
        }
    }
    if program == "find" && rest().any(|word| word == "-delete") {
        return Some((Harm::DeletesFiles, vec!["-delete".to_owned()]));
    }
    if program == "git"
        && let Some(found) = git_harm(command)
    {
        return Some(found);
    }
    // Flags that write into a file: `sort -o`, `sed -i`, `curl -o`.
    let writes = risks(&command.words).iter().any(|risk| !risk.executes);
    let is_other = match program {
        "chmod" | "chown" | "chgrp" => {
            rest().any(|word| word == "--recursive" || is_short(word, 'R'))
                || program == "chmod" && rest().find(|word| !word.starts_with('-')).is_some_and(sets_user_id)
        }
        "rsync" => rest().any(|word| word.starts_with("--del") || word.starts_with("--remove")),
        "ln" | "cp" | "install" => rest().any(|word| word == "--force" || is_short(word, 'f')),
        _ => false,
    };
    (writes || is_other).then(|| (Harm::Other, Vec::new()))
}

/// Returns whether a mode of chmod lets others run the file as its owner.
fn sets_user_id(mode: &str) -> bool {
    let is_number = mode.chars().all(|c| c.is_ascii_digit());
    if is_number { mode.len() > 3 && !mode.starts_with('0') } else { mode.contains('s') }
}

fn is_short(word: &str, letter: char) -> bool {
    word.strip_prefix('-').is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

fn git_harm(command: &Simple) -> Option<(Harm, Vec<String>)> {
    let at = git::skip_global_flags(&command.words);
    let texts = command.texts();
    let sub = texts.get(at).copied()?;
    let rest = tail(&texts, at + 1);
    let found = |harm: Harm, is_it: &dyn Fn(&str) -> bool| {
        let words: Vec<String> =
            rest.iter().filter(|word| is_it(word)).map(|word| (*word).to_owned()).collect();
        (!words.is_empty()).then_some((harm, words))
    };
    // The subcommand itself does the harm, unless an option says that it only shows what it would do.
    let always = |harm: Harm, unless: &[&str]| {
        let options = rest.iter().filter(|word| word.starts_with('-'));
        let words = std::iter::once(&sub).chain(options).map(|word| (*word).to_owned()).collect();
        (!rest.iter().any(|word| unless.contains(word))).then_some((harm, words))
    };
    let is_force = |word: &str| word == "--force" || is_short(word, 'f');
    match sub {
        "push" => found(Harm::ForcePushes, &|word| {
            is_short(word, 'f')
                || word.starts_with("--force")
                || word.starts_with("--mirror")
                || word.starts_with('+')
        })
        .or_else(|| {
            found(Harm::DeletesBranches, &|word| {
                is_short(word, 'd')
                    || word.starts_with("--delete")
                    || word.starts_with("--prune")
                    || word.starts_with(':')
            })
        }),
        "reset" => found(Harm::DiscardsChanges, &|word| matches!(word, "--hard" | "--merge")),
        "clean" => always(Harm::DeletesFiles, &["-n", "--dry-run"]),
        "rm" => {
            always(Harm::DeletesFiles, &["-n", "--dry-run", "--cached"]).or_else(|| always(Harm::Other, &[]))
        }
        "checkout" => found(Harm::DiscardsChanges, &|word| matches!(word, "--" | ".") || is_force(word)),
        "restore" => always(Harm::DiscardsChanges, &[]),
        "filter-branch" | "filter-repo" => always(Harm::RewritesHistory, &[]),
        "rebase" => always(Harm::RewritesHistory, &["--abort", "--quit", "--show-current-patch"]),
        "commit" => found(Harm::RewritesHistory, &|word| word == "--amend"),
        "prune" => always(Harm::Other, &[]),
        "branch" => found(Harm::DeletesBranches, &|word| {
            is_short(word, 'D') || is_short(word, 'd') || word == "--delete"
        }),
        "tag" => found(Harm::DeletesBranches, &|word| is_short(word, 'd') || word == "--delete")
            .or_else(|| found(Harm::Other, &is_force)),
        "stash" => found(Harm::DiscardsChanges, &|word| matches!(word, "drop" | "clear")),
        "reflog" => found(Harm::RewritesHistory, &|word| matches!(word, "expire" | "delete")),
        "update-ref" => found(Harm::DeletesBranches, &|word| is_short(word, 'd')),
        "worktree" => found(Harm::DeletesFiles, &|word| matches!(word, "remove" | "prune")),
        "remote" => found(Harm::Other, &|word| matches!(word, "remove" | "rm")),
        "switch" => found(Harm::DiscardsChanges, &|word| is_force(word) || word == "--discard-changes"),
        "gc" => found(Harm::Other, &|word| word.starts_with("--prune")),
        _ => None,
    }
}
