//! What the model is told about the project, the day, and what it may do here. Each is a text of its own: when one changes, a
//! message says so, and the rest of the prompt stays as it is.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use aye_files::opener::{FilePlace, resolve};
use aye_sandbox::common_git_folder;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use jiff::tz::TimeZone;

use crate::config::writes_patches;
use crate::contract::context_message::ContextMessage;
use crate::contract::display::{shortened, visible_line};
use crate::contract::mode::Mode;
use crate::phase::{
    AddContextMessage, ExcludeTools, ExcludedTools, PhaseContext, PhaseHook, Plugin, PluginDescriptor,
    PluginRegistrar,
};
use crate::plugins::permission::Permissions;
use crate::program::git_index::has_unstaged_changes;
use crate::state::{Phase, StateCommand, StateError};

pub(crate) const ENVIRONMENT_PLUGIN: &str = "environment";

/// Characters of a branch's name.
const MAX_BRANCH: usize = 60;
/// The tool that asks the user.
const ASKS: &str = "AskUser";
/// The tool for models that are used to change files by patches.
const PATCHES: &str = "apply_patch";

/// What the model knows of a worktree that aye made.
const WORKTREE: &str =
    " This folder is a git worktree for this task alone: commit your work, so that the user can merge it.";

/// Whether somebody answers the questions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A user who is there.
    Present,
    /// Somebody, some time: the run waits.
    Later,
    /// Nobody: what would need an answer does not run.
    Nobody,
}

/// Where a run takes place, and what it may do there.
#[derive(Clone)]
pub(crate) struct RunConditions {
    pub(crate) permission: Permissions,
    pub(crate) audience: Audience,
    /// What differs from a sandbox without network; empty if nothing does.
    pub(crate) sandbox: String,
    /// The root of the project.
    pub(crate) root: PathBuf,
    /// Whether aye made this folder for one task.
    pub(crate) is_worktree: bool,
}

impl RunConditions {
    fn text(&self) -> String {
        let mode = self.permission.mode();
        let asks = match mode {
            Mode::Ask => "calls that no rule allows need the user's approval",
            Mode::AcceptEdits => {
                "files of the project may be changed; other calls that no rule allows need the user's approval"
            }
            Mode::Auto => {
                "files of the project may be changed and commands run in the sandbox; what a rule asks about needs the \
                 user's approval"
            }
            Mode::Plan => "only look, change nothing, and answer with a plan",
            Mode::Yolo => "calls need no approval unless a rule asks",
        };
        let mut text = format!("Permission mode {}: {asks}.", mode.as_str());
        text.push_str(match self.audience {
            Audience::Present => "",
            Audience::Later => " Nobody watches: the run waits, maybe long, where it needs an answer.",
            Audience::Nobody => " Nobody is there: what needs approval does not run.",
        });
        if !self.sandbox.is_empty() {
            text.push(' ');
            text.push_str(&self.sandbox);
        }
        text
    }
}

/// Whether tracked files were changed when a run started, by run and branch: the changes that the model makes itself are no
/// news. It is read while the run is being stored, and awaited before the first request.
type KnownChanges = Arc<Mutex<Option<(String, Shared<BoxFuture<'static, Option<bool>>>)>>>;

/// Offers the instructions of the user and the project, the date, and what may be done here.
#[derive(Clone)]
pub(crate) struct EnvironmentPlugin {
    instructions: String,
    zone: fn() -> TimeZone,
    here: RunConditions,
    changes: KnownChanges,
}

impl EnvironmentPlugin {
    /// The date is that of the zone at the time of each request.
    pub(crate) fn new(instructions: &str, zone: fn() -> TimeZone, here: RunConditions) -> Self {
        let instructions = match instructions.trim() {
            "" => String::new(),
            text => format!("# Instructions of the user and the project\n\n{text}"),
        };
        Self { instructions, zone, here, changes: Arc::default() }
    }

    /// What git has checked out, and whether tracked files differed from its index at the start of the run; `None` outside a
    /// repository.
    fn repository(&self, run: &str) -> Option<(String, Shared<BoxFuture<'static, Option<bool>>>)> {
        let root = &self.here.root;
        let git = own_git_folder(root)?;
        // A name may contain anything.
        let branch = shortened(&visible_line(&branch_in(&git)?), MAX_BRANCH).into_owned();
        let key = format!("{run} {branch}");
        let mut known = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, changes)) = &*known
            && *of == key
        {
            return Some((branch, changes.clone()));
        }
        let root = root.clone();
        let task = tokio::task::spawn_blocking(move || has_unstaged_changes(&root, &git));
        let changes = task.map(|changed| changed.ok().flatten()).boxed().shared();
        *known = Some((key, changes.clone()));
        Some((branch, changes))
    }
}

impl Plugin for EnvironmentPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(
            ENVIRONMENT_PLUGIN,
            "adds the project's instructions, the date and what may be done here to the context",
        )
    }

    // They are for every agent of the workspace.
    fn is_guard(&self) -> bool {
        true
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::RunStart, StartReading(self.clone()));
        registrar.register_hook(Phase::BeforeInference, self.clone());
        Ok(())
    }
}

struct StartReading(EnvironmentPlugin);

#[async_trait]
impl PhaseHook for StartReading {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let _ = self.0.repository(ctx.run_identity.run_id.as_str());
        Ok(StateCommand::new())
    }
}

#[async_trait]
impl PhaseHook for EnvironmentPlugin {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let mut add = |key: &str, text: &str| {
            command.schedule_action::<AddContextMessage>(ContextMessage::system(
                format!("environment.{key}"),
                text,
            ))
        };
        if !self.instructions.is_empty() {
            add("instructions", &self.instructions)?;
        }
        let date = jiff::Timestamp::now().to_zoned((self.zone)()).date();
        add("date", &format!("Date: {date}."))?;
        add("here", &self.here.text())?;
        if let Some((branch, changes)) = self.repository(ctx.run_identity.run_id.as_str()) {
            let changes = match changes.await {
                Some(true) => "; there are unstaged changes",
                Some(false) => "; no unstaged changes",
                None => "",
            };
            let own = if self.here.is_worktree { WORKTREE } else { "" };
            add("git", &format!("Git branch: {branch}{changes}.{own}"))?;
        }
        if self.here.audience == Audience::Nobody {
            command.schedule_action::<ExcludeTools>(ExcludedTools {
                tools: BTreeSet::from([ASKS.to_owned()]),
                why: Some("asks the user, and nobody is available".to_owned()),
            })?;
        }
        let has_patches = ctx.tools.iter().any(|tool| tool.id == PATCHES);
        if has_patches && !writes_patches(&ctx.agent_spec.model) {
            command.schedule_action::<ExcludeTools>(ExcludedTools {
                tools: BTreeSet::from([PATCHES.to_owned()]),
                why: Some("is offered to GPT-5 and later only; use Edit and Write".to_owned()),
            })?;
        }
        Ok(command)
    }
}

/// The estimated tokens of the instructions in a request.
pub(crate) fn tokens_of(instructions: &str) -> usize {
    match instructions.trim().len() {
        0 => 0,
        bytes => bytes / 4 + 12,
    }
}

/// Returns the folder of the repository that the model learns about. Unlike the user, it only learns of the project's own
/// repository, or of one that names this folder as its worktree: a project's `.git` file may lead to any other.
fn own_git_folder(root: &Path) -> Option<PathBuf> {
    let is_own = root.join(".git").symlink_metadata().is_ok_and(|git| git.is_dir());
    (is_own || common_git_folder(root).is_some()).then(|| git_folder(root)).flatten()
}

// A foreign repository may have a FIFO in the place of any file.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = String::from_utf8(crate::walk::read_regular(&git, 4096)?).ok()?;
    Some(root.join(text.strip_prefix("gitdir:")?.trim()))
}

/// Returns the branch checked out in a repository, or the start of the commit. Reads two small files.
pub(crate) fn branch(root: &Path) -> Option<String> {
    branch_in(&git_folder(root)?)
}

fn branch_in(git: &Path) -> Option<String> {
    // git writes no link there, and the text of another file is no branch.
    let head = FilePlace::of(&resolve(git).ok()?.join("HEAD")).ok()?.open_regular().ok()?;
    let mut text = String::new();
    head.take(4096).read_to_string(&mut text).ok()?;
    let head = text.trim();
    match head.strip_prefix("ref: refs/heads/") {
        Some(branch) => Some(branch.chars().take(200).collect()),
        None if head.len() >= 40 && head.bytes().all(|b| b.is_ascii_hexdigit()) => {
            head.get(..8).map(str::to_owned)
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_a_commit_and_a_worktree() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(branch(dir.path()), None);
        std::fs::create_dir(dir.path().join(".git")).unwrap();
        let head = dir.path().join(".git/HEAD");
        std::fs::write(&head, "ref: refs/heads/fix/a b\n").unwrap();
        assert_eq!(branch(dir.path()).as_deref(), Some("fix/a b"));
        std::fs::write(&head, "0123456789012345678901234567890123456789\n").unwrap();
        assert_eq!(branch(dir.path()).as_deref(), Some("01234567"));
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join(".git"), format!("gitdir: {}/.git\n", dir.path().display())).unwrap();
        assert_eq!(branch(tree.path()).as_deref(), Some("01234567"));
        assert_eq!(own_git_folder(dir.path()), Some(dir.path().join(".git")));
        assert_eq!(own_git_folder(tree.path()), None, "the repository does not name this folder");
        let key = dir.path().join("key");
        std::fs::rename(&head, &key).unwrap();
        std::os::unix::fs::symlink(&key, &head).unwrap();
        assert_eq!(branch(dir.path()), None, "a link to another file");
    }
}
