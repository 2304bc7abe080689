//! What a program is kept to, and what it needs until it has ended.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aye_core::contract::display::visible_line;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::judgement::SandboxOpening;
use aye_sandbox::{MAX_MASKS, NetSession, Profile, Serving, Unusable};

use super::unchanged::Unchanged;
use crate::exec::{self, Live};

/// The confinement of a program.
#[derive(Clone, Debug)]
pub struct Confined {
    /// How much of the machine the program can access.
    pub profile: Profile,
    /// The thread whose `/tmp` the program gets.
    pub thread: ThreadId,
    /// The access added by grants and trust, in [`Profile::Workspace`].
    pub opened: SandboxOpening,
    /// Files and folders it can read besides, such as the folder of its script.
    pub readable: Vec<PathBuf>,
    /// Whether other commands of the conversation may reach its ports.
    pub serving: Serving,
    /// Whether the command gets a terminal of its own.
    pub terminal: bool,
}

/// The parts that a confined program needs until it ends: its connection to the network, and the protected
/// files as they were before.
#[derive(Default)]
pub struct Confinement {
    pub(crate) network: Option<Arc<NetSession>>,
    pub(crate) unchanged: Option<Unchanged>,
    /// Notes about the confinement for the model and the user.
    pub(crate) notes: Vec<String>,
    pub(crate) withheld: Withheld,
    pub(crate) live: Option<Live>,
}

/// The names of the variables that are set, but that a confined program did not get.
#[derive(Debug, Default)]
pub struct Withheld {
    pub(super) names: Vec<String>,
    /// The names among them that are keys of aye's own.
    pub(super) own: Vec<String>,
}

impl Withheld {
    /// Returns a sentence for each variable that a command asked for: in its text, or with a complaint when it failed.
    pub fn missed(&self, command: &str, output: &str, has_failed: bool) -> Vec<String> {
        let missed = exec::missed(&self.names, command, output, has_failed);
        let sentence = |name: &str| {
            if self.own.iter().any(|own| own == name) {
                return format!("the variable {name} is a key of aye's own, which no command gets");
            }
            format!(
                "the variable {name} is set, but the sandbox passes only what builds need; the user can name it in \
                 sandbox.env, or in `env` of the rule that allows the command"
            )
        };
        missed.into_iter().map(sentence).collect()
    }
}

impl Confinement {
    /// The variables that the program did not get.
    pub fn take_withheld(&mut self) -> Withheld {
        std::mem::take(&mut self.withheld)
    }

    /// After the end of the program: sets changed protected files aside. Returns one sentence for each, and one for each
    /// refused connection.
    pub async fn settle(self) -> Vec<String> {
        let refused = self.network.as_ref().map(|network| network.refusals()).unwrap_or_default();
        let mut notes: Vec<String> =
            refused.into_iter().map(|(_, sentence)| sentence).chain(self.notes).collect();
        if let Some(unchanged) = self.unchanged {
            let settled = tokio::task::spawn_blocking(move || unchanged.settle(false)).await;
            notes.extend(settled.unwrap_or_else(|error| vec![error.to_string()]));
        }
        notes
    }
}

/// The confinement of a program that runs beside others: what it changed of protected files is only reported, when this
/// is dropped.
pub struct ReportedChanges {
    confinement: Confinement,
    report: Box<dyn Fn(String) + Send>,
}

impl Confinement {
    /// For a program that runs beside others.
    pub fn reported(self, report: impl Fn(String) + Send + 'static) -> ReportedChanges {
        ReportedChanges { confinement: self, report: Box::new(report) }
    }
}

impl Drop for ReportedChanges {
    fn drop(&mut self) {
        for note in self.confinement.unchanged.iter().flat_map(|unchanged| unchanged.settle(true)) {
            (self.report)(note);
        }
    }
}

/// Why the kernel cannot keep a program to its profile.
#[derive(Debug, thiserror::Error)]
pub enum NotConfined {
    /// A terminal needs a supervisor.
    #[error("no supervisor can give it a terminal")]
    NoSupervisor,
    /// The machine lacks a layer: which one, and what to do.
    #[error("{0}")]
    Missing(String),
    /// The file that starts sandboxed programs is gone, as after an update.
    #[error("aye's program file {} no longer exists; start aye again", .0.display())]
    OwnProgram(PathBuf),
    /// No sandbox can be made of what is to be reached.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// There is no way to the domains.
    #[error("the sandbox's network proxy cannot be started: {0}")]
    Network(io::Error),
    /// A private folder cannot be made.
    #[error("cannot create {}: {error}", path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
}

/// Folders that are named in a note.
const MAX_NAMED: usize = 3;

/// Says that nothing can be created in a folder.
pub(super) fn shown_in_part(path: &Path, workspace: &Path) -> String {
    let name = if path == workspace { "the project's folder" } else { &*path.to_string_lossy() };
    format!(
        "the rules hide more than {MAX_MASKS} files, so the command saw only the other entries of {}, and could \
         create none in it",
        visible_line(name)
    )
}

/// Says that folders are hidden with more than what rules keep from being read.
pub(super) fn hidden_folders(hidden: &[PathBuf], workspace: &Path) -> Option<String> {
    let shown = |path: &PathBuf| {
        let path = path.strip_prefix(workspace).unwrap_or(path);
        visible_line(&path.to_string_lossy()).into_owned()
    };
    let named: Vec<String> = hidden.iter().take(MAX_NAMED).map(shown).collect();
    let more = if hidden.len() > MAX_NAMED { ", …" } else { "" };
    (!hidden.is_empty()).then(|| {
        format!(
            "the rules hide more than {MAX_MASKS} files, so these folders are hidden from the command as a whole: \
             {}{more}",
            named.join(", ")
        )
    })
}
