//! Reads branch and commit of a folder from the files of its repository. Never starts git: a repository can make it
//! run anything.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The largest other file of a repository that is read, in bytes.
const MAX_SMALL: u64 = 8 << 10;
/// The largest `packed-refs` file that is read, in bytes.
const MAX_PACKED: u64 = 16 << 20;
/// Maximum number of symbolic references to follow.
const MAX_LINKS: usize = 5;

/// The checked-out branch and commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GitHead {
    /// The branch; `None` if a commit is checked out directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) branch: Option<String>,
    /// The commit; `None` for a branch without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) commit: Option<String>,
}

impl GitHead {
    /// The head of the repository that a folder is in; `None` when it is in none that can be read.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        if !folder.is_absolute() {
            return None;
        }
        let own = folder.ancestors().find_map(git_dir)?;
        // A second working tree keeps its head for itself and shares the names of branches.
        let common = small(&own.join("commondir")).map_or_else(|| own.clone(), |to| own.join(to));
        let head = small(&own.join("HEAD"))?;
        let Some(name) = head.strip_prefix("ref:").map(str::trim) else {
            return is_commit(&head).then_some(Self { branch: None, commit: Some(head) });
        };
        let branch = name.strip_prefix("refs/heads/").unwrap_or(name).to_owned();
        Some(Self { commit: resolve(&own, &common, name), branch: Some(branch) })
    }
}

/// The head of the repository that a folder is in, in words.
pub fn head_of(folder: &Path) -> Option<String> {
    GitHead::of(folder).map(|head| head.to_string())
}

impl std::fmt::Display for GitHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.branch {
            Some(branch) => f.write_str(branch)?,
            None => f.write_str("no branch")?,
        }
        match &self.commit {
            Some(commit) => write!(f, " at {}", short(commit)),
            None => f.write_str(" without a commit"),
        }
    }
}

/// Returns a commit's short name, as users write it.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..7).unwrap_or(commit)
}

/// Returns the directory that contains the repository of a working tree.
fn git_dir(folder: &Path) -> Option<PathBuf> {
    let git = folder.join(".git");
    let about = git.metadata().ok()?;
    if about.is_dir() {
        return git.join("HEAD").metadata().is_ok().then_some(git);
    }
    let text = small(&git)?;
    Some(folder.join(text.strip_prefix("gitdir:")?.trim()))
}

/// Returns the commit that a name refers to.
fn resolve(own: &Path, common: &Path, name: &str) -> Option<String> {
    let mut name = name.to_owned();
    for _ in 0..MAX_LINKS {
        // A name is not a path: it must not lead out of the repository.
        if name.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
            return None;
        }
        let found = small(&own.join(&name)).or_else(|| small(&common.join(&name)));
        match found {
            Some(text) => match text.strip_prefix("ref:") {
                Some(next) => next.trim().clone_into(&mut name),
                None => return is_commit(&text).then_some(text),
            },
            None => return packed(common, &name),
        }
    }
    None
}

fn packed(common: &Path, name: &str) -> Option<String> {
    let text = read(&common.join("packed-refs"), MAX_PACKED)?;
    let line = text.lines().find_map(|line| line.split_once(' ').filter(|(_, known)| *known == name))?;
    is_commit(line.0).then(|| line.0.to_owned())
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn small(path: &Path) -> Option<String> {
    let text = read(path, MAX_SMALL)?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The text of a plain file that is not larger than that. A pipe in its place must not hold anybody up.
fn read(path: &Path, most: u64) -> Option<String> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > most {
        return None;
    }
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";

    fn write(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn output(dir: &Path) -> String {
        GitHead::of(dir).map_or_else(|| "none".to_owned(), |head| head.to_string())
    }

    #[test]
    fn the_head_is_read_in_every_form() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        assert_eq!(output(top), "none");
        write(top, ".git/HEAD", "ref: refs/heads/main\n");
        assert_eq!(output(top), "main without a commit");
        write(top, ".git/packed-refs", &format!("# pack-refs\n{ONE} refs/heads/main\n^{TWO}\n"));
        assert_eq!(output(&top.join("src/deep")), "main at 1111111");
        write(top, ".git/refs/heads/main", &format!("{TWO}\n"));
        assert_eq!(output(top), "main at 2222222", "a loose name counts before a packed one");
        write(top, ".git/HEAD", &format!("{ONE}\n"));
        assert_eq!(output(top), "no branch at 1111111");

        // A second working tree.
        let tree = dir.path().join("tree");
        write(&tree, ".git", &format!("gitdir: {}\n", top.join(".git/worktrees/tree").display()));
        write(top, ".git/worktrees/tree/HEAD", "ref: refs/heads/fix/it\n");
        write(top, ".git/worktrees/tree/commondir", "../..\n");
        write(top, ".git/refs/heads/fix/it", ONE);
        assert_eq!(output(&tree), "fix/it at 1111111");
    }

    #[test]
    fn a_hostile_repository_is_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        write(top, "secret", ONE);
        write(top, ".git/HEAD", "ref: refs/heads/../../../secret\n");
        assert!(!output(top).contains("1111111"), "a name is no path");
        write(top, ".git/HEAD", "ref: refs/heads/a\n");
        write(top, ".git/refs/heads/a", "ref: refs/heads/a\n");
        assert_eq!(output(top), "a without a commit");
        write(top, ".git/HEAD", "nonsense");
        assert_eq!(output(top), "none");
        std::fs::remove_file(top.join(".git/HEAD")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(top.join(".git/HEAD")).status();
        assert!(pipe.unwrap().success());
        assert_eq!(output(top), "none", "a pipe holds nobody up");
    }
}
