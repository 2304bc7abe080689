//! The files in git's index that a command would print; no mask on the disk prevents that.

use super::reach::{has_long, has_short};
use super::tables::TABLES;
use aye_core::contract::digest::hex;
use aye_pattern::shell::Word;
use std::path::{Path, PathBuf};

/// A larger index, or settings file, is not read.
const MAX_INDEX: u64 = 256 << 20;
const MAX_CONFIG: u64 = 1 << 20;

/// Names of files that commits contain, relative to the root of their repository.
pub type NamesInHistory = Vec<Vec<u8>>;

/// The files that a git command would print out of the repository.
#[derive(Debug, Default)]
pub(super) struct Printed {
    /// The paths that the files are below; empty means every file.
    pub(super) paths: Vec<String>,
    /// Whether the files may be ones that only older commits contain.
    pub(super) is_old: bool,
    /// Whether only files are printed that the words name by the hash of their content.
    pub(super) is_by_hash: bool,
}

/// Whether git prints no content because of a word.
fn is_quiet(text: &str) -> bool {
    if let Some(long) = text.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or(long);
        return name.is_empty() || TABLES.git.prints_no_content.contains(name);
    }
    let Some(short) = text.strip_prefix('-') else { return true };
    let rest = short.strip_prefix(['n', 'M', 'C', 'u']).unwrap_or(short);
    match short {
        // `git diff -u` prints a patch, `git status -uno` does not.
        "u" => false,
        "" | "n" | "M" | "C" | "i" | "E" | "F" | "P" | "g" | "s" | "z" | "q" | "b" | "sb" | "uno"
        | "uall" | "unormal" => true,
        _ => !short.starts_with('u') && rest.trim_end_matches('%').bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Whether a word is `REVISION:PATH`, or `:PATH` in the index. A pattern, and what starts with a colon and a sign, limits
/// what is shown of a commit instead.
fn is_named(text: &str) -> bool {
    let is_path = |path: &str| path.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
    match text.split_once(':') {
        _ if has_pattern(text) => false,
        Some(("", path)) => is_path(path),
        Some(_) => true,
        None => false,
    }
}

fn has_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

/// The files whose content a git command would print. `None`: it prints none, or only files that its words name.
pub(super) fn printed(words: &[Word]) -> Option<Printed> {
    let sub = words.get(1).map(|word| word.text.as_str())?;
    let rest = words.get(1..)?;
    let is_verbose = !rest.iter().all(|word| is_quiet(&word.text));
    let is_summary = || {
        let name =
            |word: &Word| word.text.strip_prefix("--").map(|long| long.split('=').next() == Some(long));
        let is_one = |word: &Word| {
            word.text == "-s"
                || word.text.starts_with("--stat=")
                || name(word) == Some(true) && TABLES.git.summaries.contains(&word.text[2..])
        };
        rest.iter().any(is_one)
    };
    let before = rest.iter().skip(1).take_while(|word| word.text != "--");
    let operands = before.clone().filter(|word| !word.text.starts_with('-'));
    let names_all = || operands.clone().count() > 0 && operands.clone().all(|word| is_named(&word.text));
    // Options add commits to those that are named.
    let has_no_options = || before.clone().count() == operands.clone().count();
    let is_hash = |text: &str| text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Even a summary of a file's object is the file.
    let is_by_hash = sub == "show"
        && !is_verbose
        && is_summary()
        && operands.clone().any(|word| word.text.split(['.', '^']).any(is_hash));
    let prints = match sub {
        "log" | "reflog" | "whatchanged" | "status" => is_verbose,
        // `REVISION:PATH` is a file that is named.
        "show" => is_verbose || !(names_all() && has_no_options()) && (!is_summary() || is_by_hash),
        "diff" | "diff-tree" | "diff-index" | "diff-files" => is_verbose || !is_summary(),
        "stash" => rest.get(1).is_some_and(|word| word.text == "show") && (is_verbose || !is_summary()),
        "cat-file" => !names_all(),
        "grep" | "format-patch" | "archive" | "bundle" | "fast-export" | "range-diff" => true,
        _ => false,
    };
    let is_old = match sub {
        "diff" | "diff-files" => {
            operands.clone().count() > 0 || has_long(rest, &["cached", "staged", "merge-base"])
        }
        "grep" => {
            operands.clone().count() > 1 || has_short(rest, &['e', 'f']) || has_long(rest, &["and", "or"])
        }
        _ => true,
    };
    prints.then(|| Printed { paths: paths(sub, rest), is_old, is_by_hash })
}

/// The paths after `--`, when they certainly limit what a git command prints; otherwise nothing.
fn paths(sub: &str, rest: &[Word]) -> Vec<String> {
    // Commands for which the first `--` ends the options even where it could be the value of one.
    const REVISIONS: &[&str] =
        &["log", "show", "diff", "diff-tree", "diff-index", "diff-files", "whatchanged", "reflog", "stash"];
    let mut parts = rest.splitn(2, |word| word.text == "--");
    let (before, Some(paths)) = (parts.next().unwrap_or_default(), parts.next()) else { return Vec::new() };
    let is_end = REVISIONS.contains(&sub) || before.last().is_some_and(|word| !word.text.starts_with('-'));
    // A file that is followed had other names.
    let follows = has_long(rest, &["follow"]);
    // Git's patterns match like a shell's, and what starts with a colon may be anything.
    let is_plain = |word: &Word| word.is_literal() && !word.text.starts_with(':') && !has_pattern(&word.text);
    if is_end && !follows && paths.iter().all(is_plain) {
        paths.iter().map(|word| word.text.clone()).collect()
    } else {
        Vec::new()
    }
}

/// A repository as its folder says.
pub(super) struct Repository {
    /// The folder that its files are in.
    pub(super) root: PathBuf,
    git_dir: PathBuf,
    config: String,
}

impl Repository {
    /// The one that git would use in a folder.
    pub(super) fn of(cwd: &Path) -> Option<Repository> {
        let root = cwd.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())?;
        let entry = root.join(".git");
        let git_dir = match read(&entry, MAX_CONFIG) {
            Some(link) => root.join(String::from_utf8_lossy(&link).strip_prefix("gitdir:")?.trim()),
            None => entry,
        };
        let common = read(&git_dir.join("commondir"), MAX_CONFIG)
            .map_or_else(|| git_dir.clone(), |text| git_dir.join(String::from_utf8_lossy(&text).trim()));
        let texts =
            [common.join("config"), git_dir.join("config.worktree")].map(|file| read(&file, MAX_CONFIG));
        let config =
            texts.iter().flatten().map(|text| String::from_utf8_lossy(text)).collect::<Vec<_>>().join("\n");
        Some(Repository { root: root.to_owned(), git_dir, config })
    }

    /// The folder that its settings name in place of its own, as they spell it.
    pub(super) fn elsewhere(&self, workspace: &Path) -> Option<String> {
        let named = values(&self.config, "core", "worktree");
        named.into_iter().find(|value| {
            let is_plain = !value.contains(['"', '\\', '#', ';']);
            let inside = || {
                super::path::resolve(&self.git_dir.join(value))
                    .0
                    .starts_with(super::path::resolve(workspace).0)
            };
            !(is_plain && inside())
        })
    }

    /// The files of which `git blame` would print lines as errors, as the settings spell them, with the folder that they
    /// are relative to. No later setting takes such a file away. Included settings may name more.
    pub(super) fn ignored_revisions(&self) -> Vec<(PathBuf, String)> {
        let files = values(&self.config, "blame", "ignorerevsfile").into_iter();
        let files = files.filter(|value| !value.is_empty()).map(|value| (self.root.clone(), value));
        let sections = self.config.lines().filter_map(|line| line.trim().strip_prefix('['));
        let has_more =
            sections.into_iter().any(|head| head.trim_start().to_ascii_lowercase().starts_with("include"));
        files.chain(has_more.then(|| (PathBuf::new(), "included settings".to_owned()))).collect()
    }

    /// The names in its index. `None`: it cannot be read.
    pub(super) fn tracked(&self) -> Option<Vec<Vec<u8>>> {
        let format = values(&self.config, "extensions", "objectformat");
        let hash = if format.iter().any(|value| value.eq_ignore_ascii_case("sha256")) { 32 } else { 20 };
        let file = self.git_dir.join("index");
        if file.symlink_metadata().is_err() {
            return Some(Vec::new());
        }
        let (mut names, base) = entries(&read(&file, MAX_INDEX)?, hash)?;
        if let Some(base) = base {
            let (shared, _) =
                entries(&read(&self.git_dir.join(format!("sharedindex.{base}")), MAX_INDEX)?, hash)?;
            names.extend(shared);
        }
        Some(names)
    }
}

fn read(file: &Path, max: u64) -> Option<Vec<u8>> {
    let about = std::fs::metadata(file).ok()?;
    if !about.is_file() || about.len() > max {
        return None;
    }
    std::fs::read(file).ok()
}

/// The values of a setting in git's own files, unquoted.
fn values(config: &str, section: &str, key: &str) -> Vec<String> {
    let (mut found, mut at) = (Vec::new(), String::new());
    for line in config.lines() {
        let mut line = line.trim();
        if let Some((head, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            at = head.trim().to_ascii_lowercase();
            line = rest.trim();
        }
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        if at == section && name.trim().eq_ignore_ascii_case(key) {
            let value = value.trim();
            let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            found.push(unquoted.unwrap_or(value).to_owned());
        }
    }
    found
}

/// The names in an index, and the hash of the one that it shares entries with.
fn entries(bytes: &[u8], hash: usize) -> Option<(Vec<Vec<u8>>, Option<String>)> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (version, count) = (number(4)?, number(8)? as usize);
    if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let (mut at, mut names) = (12, Vec::<Vec<u8>>::with_capacity(count.min(bytes.len() / 40)));
    for _ in 0..count {
        let start = at;
        at += 40 + hash;
        let is_extended = bytes.get(at)? & 0x40 != 0 && version > 2;
        at += if is_extended { 4 } else { 2 };
        let mut name = Vec::new();
        if version == 4 {
            let (drop, next) = offset(bytes, at)?;
            let before = names.last().map_or(&[][..], Vec::as_slice);
            name.extend_from_slice(before.get(..before.len().checked_sub(drop)?)?);
            at = next;
        }
        let length = bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(bytes.get(at..at + length)?);
        at += length;
        // From version 4 on, one zero byte follows; before that, one to eight.
        at = if version == 4 { at + 1 } else { start + (at - start + 8) / 8 * 8 };
        names.push(name);
    }
    let mut base = None;
    while at + 8 + hash <= bytes.len() {
        let (size, content) = (number(at + 4)? as usize, at + 8);
        if bytes.get(at..at + 4)? == b"link" {
            let named = bytes.get(content..content + hash)?;
            base = Some(hex(named)).filter(|text| text.contains(|c| c != '0'));
        }
        at = content.checked_add(size)?;
    }
    Some((names, base))
}

/// A number in the form of version 4, and what comes after it.
fn offset(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some((value, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn git(at: &Path, args: &[&str]) {
        let status = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(at)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", at)
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{args:?}");
    }

    #[test]
    fn every_index_version_is_read() {
        let make: &[&[&[&str]]] = &[
            &[&["update-index", "--index-version", "2"]],
            &[&["update-index", "--index-version", "3"]],
            &[&["update-index", "--index-version", "4"]],
            // Extended flags.
            &[&["add", "-N", "new"], &["update-index", "--skip-worktree", "a/b"]],
            &[&["update-index", "--split-index"], &["add", "new"]],
        ];
        for format in ["sha1", "sha256"] {
            for steps in make {
                let dir = tempfile::tempdir().unwrap();
                let root = dir.path();
                git(root, &["init", "-q", &format!("--object-format={format}")]);
                assert_eq!(Repository::of(root).unwrap().tracked(), Some(Vec::new()), "no index");
                std::fs::create_dir(root.join("a")).unwrap();
                let names = [".env", "a/b", "a/bc", "a/long-enough-for-padding", "z"];
                for name in names {
                    std::fs::write(root.join(name), name).unwrap();
                }
                git(root, &["add", "."]);
                std::fs::write(root.join("new"), "").unwrap();
                for step in *steps {
                    git(root, step);
                }
                let mut found = Repository::of(&root.join("a")).unwrap().tracked().unwrap();
                found.retain(|name| !name.is_empty() && name != b"new");
                found.sort();
                found.dedup();
                let found: Vec<String> =
                    found.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
                assert_eq!(found, names, "{format} {steps:?}");
            }
        }
        for broken in [&b""[..], b"DIRC", b"DIRC\0\0\0\x09\0\0\0\0", b"DIRC\0\0\0\x02\0\0\xff\xff"] {
            assert_eq!(entries(broken, 20), None);
        }
    }

    #[test]
    fn a_work_tree_elsewhere_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        git(&root, &["init", "-q"]);
        let seen = |text: &str| {
            std::fs::write(root.join(".git/config"), text).unwrap();
            Repository::of(&root).unwrap().elsewhere(&root)
        };
        for inside in [
            "[core]\n\tbare = false\n",
            "[core]\nworktree = ..\n",
            "[core]\nworktree = ../sub",
            "[a]\nworktree = /etc",
        ] {
            assert_eq!(seen(inside), None, "{inside}");
        }
        for outside in [
            "[core]\n\tworktree = /etc\n",
            "[CORE] WorkTree=/etc",
            "[core]\nx = 1\n[ core ]\nworktree = \"/etc\"",
            "[core]\nworktree = ../..",
            "[core]\nworktree = /et\\\nc",
        ] {
            assert!(seen(outside).is_some(), "{outside}");
        }
    }
}
