//! The files that a command line would open: those that its words name, and those that it finds by walking
//! folders.
//!
//! A deny or ask rule about a file binds commands too. The files that a line names are checked against the
//! rules whatever the line is; those that it would find are looked up on disk, and only before it would run
//! without a question. Both apply to known programs: a program that opens files on its own is left to the
//! rules that allow it.

use super::command_match::no_files;
use super::files::{FileRules, Inside, binds};
use super::path::{self, Forms, PathRoots};
use super::repository::{NamesInHistory, Printed, Repository, printed};
use super::rules::Rule;
use super::tables::TABLES;
use aye_core::contract::display::visible_line;
use aye_core::contract::path_policy::PathAccess;
use aye_files::known::KnownFiles;
use aye_files::walk::WalkFilter;
use aye_pattern::Matcher;
use aye_pattern::shell::{Analysis, Simple, Word, is_awk, only_reads, risks};
use ignore::overrides::OverrideBuilder;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Words of a line that are looked up.
const MAX_WORDS: usize = 500;
/// Maximum entries that are checked to find out what a line would read.
const MAX_ENTRIES: usize = 20_000;
/// Time limit of that check.
const MAX_TIME: Duration = Duration::from_millis(300);

/// The way a program uses the files it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Reads,
    Writes,
    Unknown,
}

/// A file that a line names.
#[derive(Debug)]
pub(super) struct NamedFile {
    text: String,
    forms: Vec<Forms>,
    is_folder: bool,
    by: Use,
}

/// The relation of a rule about files to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleOverlap<'a> {
    /// It is about this file.
    Yes(&'a str),
    /// It is about writing this file, and what the program does with it is not known.
    Maybe,
    No,
}

/// Programs that show or test names, or only say what they were given.
fn only_names(words: &[Word]) -> bool {
    let program = name_of(words);
    let has = |start: &str| words.iter().any(|word| word.text.starts_with(start));
    match program {
        "git" => words.get(1).is_some_and(|sub| TABLES.git.names.contains(&sub.text)),
        // Both read lists of names from files.
        "du" | "wc" => program == "du" && !has("--files0-from"),
        "find" => !has("-exec") && !has("-ok") && !has("-files0-from"),
        _ => TABLES.programs.names.contains(program),
    }
}

fn name_of(words: &[Word]) -> &str {
    let program = words.first().map_or("", |word| word.text.as_str());
    program.rsplit('/').next().unwrap_or(program)
}

fn use_of(words: &[Word]) -> Use {
    const WRITERS: &[&str] = &[
        "cp", "mv", "rm", "rmdir", "unlink", "shred", "touch", "truncate", "tee", "dd", "ln", "install",
        "chmod", "chown", "chgrp", "patch", "rsync", "split", "csplit", "sponge", "ed", "ex", "vi", "vim",
        "nvim", "nano", "emacs", "unzip", "gzip", "gunzip", "bzip2", "xz", "zstd",
    ];
    let program = name_of(words);
    let in_place = |word: &Word| word.text.starts_with("-i") || word.text.starts_with("--in-place");
    if program == "sed" && words.iter().any(in_place) || WRITERS.contains(&program) {
        return Use::Writes;
    }
    if program == "git" {
        const CHANGES: &[&str] =
            &["checkout", "restore", "rm", "mv", "apply", "am", "stash", "reset", "clean"];
        let changes = words.get(1).is_some_and(|sub| CHANGES.contains(&sub.text.as_str()));
        return if changes { Use::Writes } else { Use::Reads };
    }
    if only_reads(program) { Use::Reads } else { Use::Unknown }
}

/// Returns the paths that a word may contain: itself, the value of an option, and the text after a `:` of
/// git.
fn candidates(text: &str) -> Vec<&str> {
    let mut found = vec![text];
    found.extend(text.split_once('=').map(|(_, value)| value));
    if text.starts_with('-') && !text.starts_with("--") {
        found.extend(text.char_indices().skip(2).map(|(at, _)| &text[at..]).take(3));
    }
    found.extend(text.match_indices(':').map(|(at, _)| &text[at + 1..]).take(4));
    found.extend(text.strip_prefix(":(").and_then(|magic| magic.split_once(')')).map(|(_, path)| path));
    found.retain(|text| !text.is_empty() && !text.contains('\0'));
    found
}

/// Goes through the commands of a line with the folders that each may run in: where the line starts, and where the
/// `cd`s before it lead when they succeed and count.
pub(super) fn each_command<'a>(
    analysis: &'a Analysis,
    cwd: &Path,
    mut visit_call: impl FnMut(&'a Simple, &[PathBuf]),
) {
    let mut folders = vec![cwd.to_owned()];
    let commands = analysis.commands.iter().filter(|command| !command.words.is_empty());
    for (index, command) in commands.enumerate() {
        let target = match command.words.as_slice() {
            [cd, target] | [cd, _, target] if cd.text == "cd" => Some(target),
            _ => None,
        };
        if let Some(target) = target.filter(|target| target.is_literal()) {
            let next = path::normalise(&folders.last().map_or(cwd, PathBuf::as_path).join(&target.text));
            folders.truncate(1);
            if index == 0 && analysis.starts_with_cd {
                // Nothing else runs when it fails.
                folders = vec![next];
            } else if folders.first() != Some(&next) {
                folders.push(next);
            }
        }
        visit_call(command, &folders);
    }
}

/// The files that a line names.
pub(super) fn named(
    analysis: &Analysis,
    places: &PathRoots<'_>,
    known: Option<&KnownFiles>,
) -> Vec<NamedFile> {
    let mut found: Vec<NamedFile> = Vec::new();
    let mut left = MAX_WORDS;
    let mut add = |text: &str, cwd: &Path, by: Use| {
        let Ok(mut seen) = path::resolve_path(text, &PathRoots { cwd, ..*places }) else { return };
        // A message or a program's text is also a word: one with spaces is a path only if such a file exists.
        if text.contains(char::is_whitespace)
            && !seen.views.iter().any(|view| view.symlink_metadata().is_ok())
        {
            return;
        }
        let is_folder = seen.views.iter().any(|view| view.is_dir());
        if let Some(known) = known {
            seen.forms.extend(path::known_forms(&seen.views, known, places));
        }
        found.push(NamedFile { text: text.to_owned(), forms: seen.forms, is_folder, by });
    };
    each_command(analysis, places.cwd, |command, folders| {
        if only_names(&command.words) {
            return;
        }
        let (by, texts) = (use_of(&command.words), no_files(&command.words));
        for (i, word) in command.words.iter().enumerate().skip(1) {
            if texts.contains(&i) || !word.is_known() || left == 0 {
                continue;
            }
            left -= 1;
            // Git takes the path after a revision for one from the root of the repository.
            let has_revision = name_of(&command.words) == "git" && word.text.contains(':');
            let repositories = folders.iter().filter_map(|cwd| Repository::of(&path::resolve(cwd).0));
            let roots: Vec<PathBuf> =
                repositories.filter(|_| has_revision).map(|repository| repository.root).collect();
            for text in candidates(&word.text) {
                for cwd in folders.iter().chain(&roots) {
                    add(text, cwd, by);
                }
            }
        }
    });
    for (word, writes) in analysis.redirects.iter().filter(|(word, _)| word.is_known()) {
        add(&word.text, places.cwd, if *writes { Use::Writes } else { Use::Reads });
    }
    found
}

/// Checks a deny or ask rule against the files that a line names.
pub(super) fn meets<'a>(rule: &Rule, files: &'a [NamedFile]) -> RuleOverlap<'a> {
    // A rule about all files says nothing about the line: which programs read at all is not known.
    if rule.pattern.is_unconditional() {
        return RuleOverlap::No;
    }
    let mut met = RuleOverlap::No;
    for file in files {
        let hits = |access| binds(rule, access, &file.forms, file.is_folder);
        if hits(PathAccess::Read) || file.by == Use::Writes && hits(PathAccess::Write) {
            return RuleOverlap::Yes(&file.text);
        }
        if file.by == Use::Unknown && hits(PathAccess::Write) {
            met = RuleOverlap::Maybe;
        }
    }
    met
}

/// The outcome of looking up what a line would find.
#[derive(Debug, Clone)]
pub(super) enum Reached {
    /// Nothing that a rule is about.
    Nothing,
    /// This file, and the rule about it.
    File(String, Arc<Rule>),
    /// A folder that a link leads to, and whose files were not checked.
    Link(String),
    /// More entries below this folder than can be checked.
    TooMuch(String),
    /// A repository whose settings name this folder, outside the workspace, as the one its files are in.
    WorkTree(String),
    /// A repository whose settings make git read this file, which the rules do not cover or restrict.
    Settings(String),
    /// A repository whose index cannot be read.
    Index,
    /// Git did not list the files of older commits in time.
    History,
}

/// The files that a command reads in the folders it is given.
struct Search {
    /// Names that start with a dot.
    hidden: bool,
    /// Files that ignore files name.
    ignored: bool,
    /// The folders `.git`.
    git_dirs: bool,
    /// Links to folders.
    links: bool,
    /// Globs that decide first.
    globs: Vec<String>,
}

impl Search {
    const EVERYTHING: Search =
        Search { hidden: true, ignored: true, git_dirs: true, links: false, globs: Vec::new() };
}

/// True when a word is a cluster of short options with one of these letters.
pub(super) fn has_short(words: &[Word], letters: &[char]) -> bool {
    words.iter().skip(1).any(|word| {
        word.text.strip_prefix('-').is_some_and(|rest| !rest.starts_with('-') && rest.contains(letters))
    })
}

/// True when a word is one of these long options, or may be short for one.
pub(super) fn has_long(words: &[Word], names: &[&str]) -> bool {
    words.iter().skip(1).filter_map(|word| word.text.strip_prefix("--")).any(|text| {
        let text = text.split('=').next().unwrap_or(text);
        text.len() > 2 && names.iter().any(|name| name.starts_with(text))
    })
}

/// Returns how a command walks folders; nothing if it does not.
fn search_of(words: &[Word]) -> Option<Search> {
    let all = Search::EVERYTHING;
    Some(match name_of(words) {
        "grep" | "egrep" | "fgrep" | "zgrep" | "bzgrep" | "xzgrep" => {
            let recurses = has_short(words, &['r', 'R', 'd'])
                || has_long(words, &["recursive", "dereference-recursive", "directories"]);
            let links = has_short(words, &['R']) || has_long(words, &["dereference-recursive"]);
            recurses.then_some(Search { links, ..all })?
        }
        "rgrep" | "ag" | "ack" | "ugrep" | "ug" => all,
        "rg" => {
            if words.iter().any(|word| word.text == "--files") {
                return None;
            }
            let count = |word: &&Word| word.text.starts_with('-') && !word.text.starts_with("--");
            let levels: usize =
                words.iter().skip(1).filter(count).map(|w| w.text.matches('u').count()).sum::<usize>()
                    + words.iter().filter(|word| word.text.starts_with("--unr")).count();
            let no_ignore = words.iter().any(|word| word.text.starts_with("--no-i"));
            Search {
                hidden: levels >= 2 || has_short(words, &['.']) || has_long(words, &["hidden"]),
                ignored: levels >= 1 || no_ignore,
                git_dirs: levels >= 2 || has_short(words, &['.']) || has_long(words, &["hidden"]),
                links: has_short(words, &['L']) || has_long(words, &["follow"]),
                globs: globs_of(words),
            }
        }
        "git" => match words.get(1).map(|sub| sub.text.as_str()) {
            Some("grep") => {
                let all_files = has_long(words, &["no-index", "no-exclude-standard"]);
                // Files that are or could be committed: the names that no ignore file excludes.
                Search { ignored: all_files, git_dirs: false, ..all }
            }
            Some("diff") if has_long(words, &["no-index"]) => all,
            _ => return None,
        },
        "diff" | "sdiff" | "colordiff" => {
            let recurses = has_short(words, &['r']) || has_long(words, &["recursive"]);
            recurses.then_some(Search { links: !has_long(words, &["no-dereference"]), ..all })?
        }
        "find" | "fd" | "fdfind" => {
            let runs = |word: &Word| {
                ["-exec", "-ok", "--exec"].iter().any(|flag| word.text.starts_with(flag))
                    || name_of(words) != "find" && matches!(word.text.as_str(), "-x" | "-X")
            };
            words.iter().skip(1).any(runs).then_some(all)?
        }
        "cp" | "scp" => {
            let recurses = has_short(words, &['r', 'R', 'a']) || has_long(words, &["recursive", "archive"]);
            recurses.then_some(all)?
        }
        "tar" | "zip" | "7z" | "rsync" | "bsdtar" | "cpio" => all,
        _ => return None,
    })
}

/// The globs of `rg`.
fn globs_of(words: &[Word]) -> Vec<String> {
    let mut globs = Vec::new();
    for (i, word) in words.iter().enumerate().skip(1) {
        let next = || words.get(i + 1).map(|next| next.text.clone());
        let text = word.text.as_str();
        match text {
            "-g" | "--glob" | "--iglob" => globs.extend(next()),
            _ => {
                let glued = ["--glob=", "--iglob=", "-g"].iter().find_map(|flag| text.strip_prefix(flag));
                globs.extend(glued.map(str::to_owned));
            }
        }
    }
    globs
}

/// The files in older commits as reported by git, by the root of the repository. `None`: git did not answer
/// in time.
pub(super) type FilesInCommits = BTreeMap<PathBuf, Option<Arc<NamesInHistory>>>;

/// The remaining budget for one line.
struct Budget {
    entries: usize,
    end: Instant,
}

/// Looks up what a line would find on disk by walking folders and by its globs. `is_masked`: the kernel hides
/// the files that rules are about, so only content that git stores elsewhere matters.
pub(super) fn reached(
    analysis: &Analysis,
    places: &PathRoots<'_>,
    rules: &FileRules,
    is_masked: bool,
    history: &FilesInCommits,
) -> Reached {
    let mut budget = Budget { entries: MAX_ENTRIES, end: Instant::now() + MAX_TIME };
    let mut found = Reached::Nothing;
    each_command(analysis, places.cwd, |command, folders| {
        for cwd in folders {
            if matches!(found, Reached::Nothing) {
                found = by_git(&command.words, cwd, rules, places, history);
            }
            if matches!(found, Reached::Nothing) && !is_masked {
                found = by_command(&command.words, cwd, rules, places, &mut budget);
            }
        }
    });
    found
}

fn by_command(
    words: &[Word],
    cwd: &Path,
    rules: &FileRules,
    places: &PathRoots<'_>,
    budget: &mut Budget,
) -> Reached {
    let search = search_of(words);
    if search.is_none() && only_names(words) {
        return Reached::Nothing;
    }
    let texts = no_files(words);
    let operands =
        || words.iter().enumerate().skip(1).filter(|(i, _)| !texts.contains(i)).map(|(_, word)| word);
    let absolute = |text: &str| match (text.strip_prefix("~/"), places.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => cwd.join(text),
    };
    if let Some(search) = search {
        let mut roots: Vec<PathBuf> = Vec::new();
        for word in operands() {
            let text = if word.is_known() { word.text.as_str() } else { literal_folder(&word.text) };
            let root = path::resolve(&absolute(text)).0;
            // A pattern that is unknown may be any folder; where it starts at nothing, it is this one.
            if (!text.is_empty() || !word.is_known()) && root.is_dir() && !roots.contains(&root) {
                roots.push(root);
            }
        }
        // Copies and archives take what they are given; searches look here when they are given nothing.
        let needs_operand =
            matches!(name_of(words), "cp" | "scp" | "tar" | "bsdtar" | "zip" | "7z" | "rsync" | "cpio");
        if roots.is_empty() && !needs_operand {
            roots.push(path::resolve(cwd).0);
        }
        for root in roots {
            let visit = |_: &Path, _: bool| true;
            match walk(&root, &search, None, &visit, rules, places, budget) {
                Reached::Nothing => {}
                other => return other,
            }
        }
        return Reached::Nothing;
    }
    for word in operands().filter(|word| word.is_glob && !word.has_holes) {
        let start = literal_folder(&word.text);
        let rest = &word.text[start.len()..];
        let root = path::resolve(&absolute(start)).0;
        let Ok(matcher) = Matcher::glob(rest) else { return Reached::TooMuch(start.to_owned()) };
        let hidden = rest.split('/').any(|part| part.starts_with(['.', '[', '\\']));
        let search = Search { hidden, ..Search::EVERYTHING };
        let folder = root.clone();
        let visit = move |path: &Path, is_dir: bool| {
            is_dir || path.strip_prefix(&folder).is_ok_and(|rest| matcher.is_match(&rest.to_string_lossy()))
        };
        match walk(&root, &search, Some(rest.split('/').count()), &visit, rules, places, budget) {
            Reached::Nothing => {}
            other => return other,
        }
    }
    Reached::Nothing
}

/// Returns what git would print for a command. Awk code can also start git, and no mask hides the content of
/// git's objects from it.
fn printed_by(words: &[Word]) -> Option<Printed> {
    match name_of(words) {
        "git" => printed(words),
        name if is_awk(name) && risks(words).iter().any(|risk| risk.executes) => {
            Some(Printed { is_old: true, ..Printed::default() })
        }
        _ => None,
    }
}

/// The roots of the repositories that a line would print older files of, with the words of the commands that do.
pub(super) fn printed_repositories(analysis: &Analysis, cwd: &Path) -> BTreeMap<PathBuf, Vec<String>> {
    let mut found: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    each_command(analysis, cwd, |command, folders| {
        if printed_by(&command.words).is_some_and(|printed| printed.is_old) {
            for repository in folders.iter().filter_map(|cwd| Repository::of(&path::resolve(cwd).0)) {
                let words = command.words.iter().map(|word| word.text.clone());
                found.entry(repository.root).or_default().extend(words);
            }
        }
    });
    found
}

/// Returns what git would read elsewhere, or print out of its repository.
fn by_git(
    words: &[Word],
    cwd: &Path,
    rules: &FileRules,
    places: &PathRoots<'_>,
    history: &FilesInCommits,
) -> Reached {
    let printed = printed_by(words);
    if name_of(words) != "git" && printed.is_none() {
        return Reached::Nothing;
    }
    let Some(repository) = Repository::of(&path::resolve(cwd).0) else { return Reached::Nothing };
    if let Some(folder) = repository.elsewhere(places.workspace) {
        return Reached::WorkTree(visible_line(&folder).into_owned());
    }
    if matches!(words.get(1).map(|sub| sub.text.as_str()), Some("blame" | "annotate")) {
        let workspace = path::resolve(places.workspace).0;
        let is_unchecked = |(folder, value): &(PathBuf, String)| {
            let target = path::resolve(&folder.join(value)).0;
            let is_plain = !value.starts_with('~') && !value.contains(['"', '\\', '#', ';']);
            !is_plain
                || !target.starts_with(&workspace)
                || rules.against_reading(&target.to_string_lossy()).is_some()
        };
        if let Some((_, file)) = repository.ignored_revisions().into_iter().find(is_unchecked) {
            return Reached::Settings(visible_line(&file).into_owned());
        }
    }
    let Some(printed) = printed else { return Reached::Nothing };
    let below: Vec<PathBuf> = printed.paths.iter().map(|text| path::resolve(&cwd.join(text)).0).collect();
    let inside = rules.inside(&repository.root);
    let condition = if name_of(words) == "git" { "" } else { " if its code starts git" };
    let find = |names: &[Vec<u8>], whence: &str| {
        names.iter().find_map(|name| {
            let file = repository.root.join(OsStr::from_bytes(name));
            let is_meant = below.is_empty() || below.iter().any(|folder| file.starts_with(folder));
            let rule = inside.rule(&file, false).filter(|_| is_meant)?;
            let shown = visible_line(&String::from_utf8_lossy(name)).into_owned();
            Some(Reached::File(format!("{shown} from {whence}{condition}"), Arc::clone(rule)))
        })
    };
    if printed.is_by_hash {
        let is_unknown = matches!(history.get(&repository.root), Some(None));
        return if is_unknown { Reached::History } else { Reached::Nothing };
    }
    let Some(names) = repository.tracked() else { return Reached::Index };
    if let Some(found) = find(&names, "the repository") {
        return found;
    }
    match history.get(&repository.root) {
        Some(Some(names)) if printed.is_old => find(names, "an older commit").unwrap_or(Reached::Nothing),
        Some(None) if printed.is_old => Reached::History,
        _ => Reached::Nothing,
    }
}

/// The folder that a glob names before its first wildcard, with its slash.
fn literal_folder(text: &str) -> &str {
    let special = |c: char| matches!(c, '*' | '?' | '[' | '{' | '\\' | '\u{fffc}');
    let end = text.find(special).unwrap_or(text.len());
    text[..end].rfind('/').map_or("", |at| &text[..=at])
}

fn walk(
    root: &Path,
    search: &Search,
    depth: Option<usize>,
    visit: &dyn Fn(&Path, bool) -> bool,
    rules: &FileRules,
    places: &PathRoots<'_>,
    budget: &mut Budget,
) -> Reached {
    let inside: Inside = rules.inside(root);
    let shown = |path: &Path| {
        let path = path.strip_prefix(places.cwd).unwrap_or(path);
        let text = if path.as_os_str().is_empty() { ".".into() } else { path.to_string_lossy() };
        visible_line(&text).into_owned()
    };
    let mut overrides = OverrideBuilder::new(root);
    for glob in &search.globs {
        // One that cannot be read fails the command too.
        let _ = overrides.add(glob);
    }
    let Ok(overrides) = overrides.build() else { return Reached::TooMuch(shown(root)) };
    let selection = WalkFilter {
        hidden: search.hidden,
        dot_ignore: !search.ignored,
        git_ignore: !search.ignored,
        git_dirs: search.git_dirs,
        parents: true,
        overrides,
    };
    let walk = aye_files::walk::walk(root, selection, |_| true);
    for entry in walk.max_depth(depth.unwrap_or(usize::MAX)) {
        if budget.entries == 0 || Instant::now() > budget.end {
            return Reached::TooMuch(shown(root));
        }
        budget.entries -= 1;
        let is_dir = entry.is_dir();
        if is_dir || !visit(entry.path(), is_dir) {
            continue;
        }
        if entry.is_symlink() {
            let target = path::resolve(entry.path()).0;
            let rule = rules.against_reading(&target.to_string_lossy());
            let opens = search.links || depth.is_some();
            if let Some(rule) = rule.filter(|_| opens) {
                return Reached::File(shown(entry.path()), Arc::clone(rule));
            }
            if search.links && target.is_dir() && !target.starts_with(root) {
                return Reached::Link(shown(entry.path()));
            }
        } else if let Some(rule) = inside.rule(entry.path(), false) {
            return Reached::File(shown(entry.path()), Arc::clone(rule));
        }
    }
    Reached::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_before_the_first_wildcard() {
        for (text, folder) in
            [("src/*.rs", "src/"), ("*", ""), ("a/b?/c", "a/"), ("a/b", "a/"), ("/x/[a]", "/x/")]
        {
            assert_eq!(literal_folder(text), folder, "{text}");
        }
    }

    #[test]
    fn paths_are_found_anywhere_in_a_word() {
        for (word, path) in [
            (".env", ".env"),
            ("--file=.env", ".env"),
            ("-f.env", ".env"),
            ("-vf.env", ".env"),
            ("HEAD:.env", ".env"),
            (":0:.env", ".env"),
            (":(top).env", ".env"),
        ] {
            assert!(candidates(word).contains(&path), "{word}: {:?}", candidates(word));
        }
    }
}
