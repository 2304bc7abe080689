//! Git worktrees that aye makes: `aye -w NAME` works in one of its own, on a branch of its own.
//!
//! They are beside the data folder, not in it: commands in a worktree may change it, and nothing of aye's own files.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::cli::start::StartFlags;
use crate::config::{Env, SandboxMissing, TrustAssessment, TrustStore, create_private_dir};
use crate::contract::amount::counted;
use crate::contract::display::visible_line;
use crate::contract::mode::Mode;
use crate::failure::Failure;
use crate::program::checkout::{DEPENDENCIES, is_real_dir, link_entries, unlink_dependencies};
use crate::program::foundation::Foundation;
use crate::program::git::{GitError, HarmlessGit};
use crate::program::parts::mode_of;
use crate::program::put_stderr;

/// The longest name.
const MAX_NAME: usize = 60;
/// The maximum bytes of a list of git.
const MAX_LIST: usize = 16 << 20;
/// The maximum bytes of a diff that is shown.
const MAX_DIFF: usize = 8 << 20;

/// A worktree of the project.
pub(crate) struct Worktree {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// What a worktree has that the project's own checkout does not.
pub(crate) struct WorktreeChanges {
    /// Files with changes that are not committed.
    pub(crate) uncommitted: usize,
    /// Commits that are not in the checkout's branch.
    pub(crate) commits: usize,
}

impl WorktreeChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.uncommitted == 0 && self.commits == 0
    }
}

impl fmt::Display for WorktreeChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.commits, self.uncommitted) {
            (0, 0) => f.write_str("nothing of its own"),
            (commits, 0) => f.write_str(&counted(commits, "commit")),
            (0, files) => write!(f, "{} not committed", counted(files, "file")),
            (commits, files) => {
                write!(f, "{}, {} not committed", counted(commits, "commit"), counted(files, "file"))
            }
        }
    }
}

impl Worktree {
    pub(crate) fn branch(&self) -> String {
        format!("aye/{}", self.name)
    }
}

/// Loads what a start needs, in the worktree that the flags name; it is made if there is none. Returns the flags that hold
/// from there on, too.
pub(crate) async fn load(cli: &StartFlags, env: Env) -> Result<(Foundation, StartFlags), Failure> {
    let foundation = Foundation::load(cli, env)?;
    let Some(name) = &cli.worktree else { return Ok((foundation, cli.clone())) };
    let worktrees = Worktrees::of(&foundation).await?;
    let (worktree, notice) = worktrees.enter(name).await?;
    if let Some(notice) = notice {
        put_stderr(&notice);
    }
    let cwd = worktrees.cwd_in(&worktree, &foundation);
    let mut cli = cli.clone();
    (cli.global.cd, cli.worktree) = (None, None);
    trust_copy(&foundation, &worktree.path, cli.global.trust)?;
    let next = Foundation::load(&cli, foundation.env.clone().with_cwd(cwd))?;
    Ok((next, cli))
}

/// Trusts in a worktree what is trusted in the checkout that it was made from: the same files with the same content, and
/// that commands may commit. What was accepted for one start is not remembered.
pub(crate) fn trust_copy(from: &Foundation, worktree: &Path, is_once: bool) -> Result<(), Failure> {
    let wrong =
        |error: std::io::Error| Failure::failed(format!("cannot read {}: {error}", worktree.display()));
    let mut assessment = TrustAssessment::of(worktree, worktree).map_err(wrong)?;
    let root = &from.workspace.root;
    let is_trusted = |path: &Path, hash: &str| {
        let is_same = |path: &Path, of: &Path, other: &Path| {
            path.strip_prefix(worktree).ok() == other.strip_prefix(of).ok()
        };
        let known =
            from.assessment.items.iter().find(|item| is_same(path, root, &item.path) && item.hash == hash);
        known.is_some_and(|item| !hash.is_empty() && !from.untrusted.contains(item))
    };
    assessment.items.retain(|item| !is_once && is_trusted(&item.path, &item.hash));
    assessment.items.extend(crate::program::foundation::repository_item(worktree));
    let store = TrustStore::at(from.paths.trust_file());
    if store.missing(&assessment).map_err(Failure::failed)?.is_empty() {
        return Ok(());
    }
    store.trust(&assessment).map_err(Failure::failed)
}

/// The worktrees of a project.
pub(crate) struct Worktrees {
    git: HarmlessGit,
    /// The root of the project's own checkout.
    pub(crate) root: PathBuf,
    folder: PathBuf,
    /// Whether every command that runs without a question is kept from what is linked.
    links: bool,
}

impl Worktrees {
    /// # Errors
    /// The folder is in no repository, or in a worktree that aye made.
    pub(crate) async fn of(foundation: &Foundation) -> Result<Self, Failure> {
        let root = foundation.workspace.root.clone();
        let own = foundation.paths.worktrees_dir();
        if root.starts_with(&own) {
            return Err(Failure::usage(format!(
                "{} is a worktree itself; start from the project's own folder",
                visible_line(&root.to_string_lossy())
            )));
        }
        let mut git = HarmlessGit::of(foundation).map_err(Failure::failed)?;
        let inside = git.ask(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], b"", 4096).await;
        if !inside.map_err(Failure::failed)?.is_ok {
            return Err(Failure::usage(format!(
                "{} is no git repository with a commit, which a worktree needs",
                visible_line(&root.to_string_lossy())
            )));
        }
        git.without_filters().await.map_err(Failure::failed)?;
        // People see this path: it begins with the name of the project.
        let name =
            root.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name)).unwrap_or("project");
        let folder = own.join(format!("{name}-{}", &foundation.project_id()[..8]));
        let sandbox = &foundation.loaded.settings.sandbox;
        let links = sandbox.enabled && sandbox.missing != SandboxMissing::Allow;
        Ok(Self { git, root, folder, links }.for_mode(mode_of(foundation)))
    }

    /// The same for commands that run in this mode.
    pub(crate) fn for_mode(self, mode: Mode) -> Self {
        Self { links: self.links && mode != Mode::Yolo, ..self }
    }

    /// The folder of a worktree that is the working directory of the checkout, or the nearest one that exists.
    pub(crate) fn cwd_in(&self, worktree: &Worktree, checkout: &Foundation) -> PathBuf {
        let below = checkout.workspace.cwd.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let real = worktree.path.join(below).canonicalize().ok();
        let root = worktree.path.canonicalize().unwrap_or_else(|_| worktree.path.clone());
        // A commit may have a link in the place of the folder.
        real.filter(|cwd| cwd.is_dir() && cwd.starts_with(&root)).unwrap_or(root)
    }

    /// Returns those that exist, by name.
    pub(crate) fn all(&self) -> Vec<Worktree> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_name(name)).collect();
        names.sort();
        names.into_iter().map(|name| Worktree { path: self.folder.join(&name), name }).collect()
    }

    /// # Errors
    /// There is none of that name; the message lists those that exist.
    pub(crate) fn named(&self, name: &str) -> Result<Worktree, Failure> {
        let all = self.all();
        let names = all.iter().map(|known| known.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = all.into_iter().find(|known| known.name == name);
        found.ok_or_else(|| {
            let known =
                if names.is_empty() { "there are none".to_owned() } else { format!("there are: {names}") };
            Failure::usage(format!("no worktree `{}`; {known}", visible_line(name)))
        })
    }

    /// Returns the worktree of that name, or of the next free number; makes it if there is none, which the text says.
    pub(crate) async fn enter(&self, name: &str) -> Result<(Worktree, Option<String>), Failure> {
        let all = self.all();
        if !name.is_empty() && !is_name(name) {
            return Err(Failure::usage(format!(
                "`{}` cannot name a worktree; use letters, digits, `-`, `_` and `.`, at most {MAX_NAME}, and begin with a \
                 letter or a digit",
                visible_line(name)
            )));
        }
        let is_free = |name: &String| all.iter().all(|known| known.name != *name);
        let name = match name {
            "" => (1..=all.len() + 1).map(|n| format!("w{n}")).find(is_free).unwrap_or_default(),
            _ => name.to_owned(),
        };
        let worktree = Worktree { path: self.folder.join(&name), name };
        let is_new = is_free(&worktree.name);
        let notice = if is_new { Some(self.make(&worktree).await?) } else { None };
        if !self.links {
            unlink_dependencies(&self.root, &worktree.path);
        }
        Ok((worktree, notice))
    }

    async fn make(&self, worktree: &Worktree) -> Result<String, Failure> {
        create_private_dir(&self.folder).map_err(Failure::failed)?;
        let (branch, path) = (worktree.branch(), worktree.path.to_string_lossy().into_owned());
        let full = format!("refs/heads/{branch}");
        let is_known = self
            .git
            .ask(&["show-ref", "--verify", "--quiet", &full], b"", 4096)
            .await
            .map_err(Failure::failed)?;
        let words = if is_known.is_ok {
            vec!["worktree", "add", "--quiet", &path, &branch]
        } else {
            vec!["worktree", "add", "--quiet", "-b", &branch, &path, "HEAD"]
        };
        self.git.change(&words).await.map_err(Failure::failed)?;
        if self.links {
            self.link_dependencies(worktree).await;
        }
        let left = self.uncommitted(&self.root).await.map_err(Failure::failed)?;
        let stay = match left {
            0 => String::new(),
            1 => "; 1 changed file that is not committed stays where it is".to_owned(),
            n => format!("; {n} changed files that are not committed stay where they are"),
        };
        Ok(format!("worktree {} on branch {branch}{stay}", worktree.name))
    }

    /// Gives a worktree the dependencies that the checkout has and git ignores: folders of links to what is in them. The
    /// sandbox lets commands read there, and write only here. A folder that cannot be linked is left out.
    async fn link_dependencies(&self, worktree: &Worktree) {
        let git = self.git.in_folder(&worktree.path);
        for name in DEPENDENCIES {
            let (from, to) = (self.root.join(name), worktree.path.join(name));
            if !is_real_dir(&from) || std::fs::create_dir(&to).is_err() {
                continue;
            }
            let asked = git.ask(&["check-ignore", "--quiet", "--", &format!("{name}/")], b"", 4096).await;
            if !asked.is_ok_and(|answer| answer.is_ok) || link_entries(&from, &to).is_err() {
                // Only links are in it.
                let _ = std::fs::remove_dir_all(&to);
            }
        }
    }

    async fn uncommitted(&self, root: &Path) -> Result<usize, GitError> {
        let status = ["status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty"];
        let out = self.git.in_folder(root).list(&status, b"", MAX_LIST).await?;
        // A renamed file has its old name in an entry of its own, which has no state in front.
        Ok(out.split(|byte| *byte == 0).filter(|entry| entry.get(2) == Some(&b' ')).count())
    }

    pub(crate) async fn state(&self, worktree: &Worktree) -> Result<WorktreeChanges, GitError> {
        let uncommitted = self.uncommitted(&worktree.path).await?;
        let range = format!("HEAD..{}", worktree.branch());
        let count = self.git.list(&["rev-list", "--count", &range, "--"], b"", 4096).await?;
        let commits = String::from_utf8_lossy(&count).trim().parse().unwrap_or_default();
        Ok(WorktreeChanges { uncommitted, commits })
    }

    /// Returns what a merge would bring, as a diff.
    pub(crate) async fn diff(&self, worktree: &Worktree) -> Result<String, GitError> {
        let range = format!("HEAD...{}", worktree.branch());
        let words = ["diff", "--no-ext-diff", "--no-textconv", "--stat", "--patch", &range, "--"];
        let diff = self.git.list(&words, b"", MAX_DIFF).await?;
        Ok(String::from_utf8_lossy(&diff).into_owned())
    }

    /// Merges the branch into the files of the project's checkout and leaves the commit to the user, whose hooks and
    /// signature belong to it.
    pub(crate) async fn merge(&self, worktree: &Worktree) -> Result<(), Failure> {
        let words = ["merge", "--no-commit", "--no-ff", "--quiet", &worktree.branch()];
        let Err(error) = self.git.change(&words).await else { return Ok(()) };
        let conflicts = self.git.list(&["diff", "--name-only", "--diff-filter=U"], b"", MAX_LIST).await;
        let conflicts = String::from_utf8_lossy(&conflicts.map_err(Failure::failed)?).into_owned();
        let names: Vec<&str> = conflicts.lines().collect();
        if names.is_empty() {
            return Err(Failure::failed(error));
        }
        self.git.change(&["merge", "--abort"]).await.map_err(Failure::failed)?;
        let names = visible_line(&names.join(", ")).into_owned();
        Err(Failure::failed(format!(
            "{} conflicts with this branch in {names}; nothing changed. Merge this branch there first: aye -w {} \"merge {} \
             and resolve the conflicts\"",
            worktree.branch(),
            worktree.name,
            self.own_branch().await
        )))
    }

    async fn own_branch(&self) -> String {
        let head = self.git.list(&["rev-parse", "--abbrev-ref", "HEAD"], b"", 4096).await.unwrap_or_default();
        String::from_utf8_lossy(&head).trim().to_owned()
    }

    /// Removes the folder and the branch. With `loses`, what is only there is lost; without, git refuses to lose what somebody
    /// wrote meanwhile.
    pub(crate) async fn remove(&self, worktree: &Worktree, loses: bool) -> Result<(), GitError> {
        let (path, branch) = (worktree.path.to_string_lossy().into_owned(), worktree.branch());
        let force: &[&str] = if loses { &["--force"] } else { &[] };
        self.git.change(&[&["worktree", "remove"], force, &[&path]].concat()).await?;
        self.git.change(&["branch", "--quiet", if loses { "-D" } else { "-d" }, &branch]).await
    }
}

/// A name that is a part of a path and of a branch as it is.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_part)
        && !name.ends_with('.')
        && !name.contains("..")
        && !Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case("lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_paths_and_branches() {
        for name in ["w1", "fix-parser", "a.b", "A_1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "..", "a..b", "-a", ".a", "a/b", "a b", "a.lock", "a.", "ä", &"x".repeat(61)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
