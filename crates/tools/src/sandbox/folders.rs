//! What the user opens to commands, and what they may take from the machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aye_core::contract::address::DomainPattern;
use aye_files::opener::PrivateFolder;
use aye_files::unused::remove_unused;

use super::confinement::NotConfined;

/// The access that the user gives commands beside the workspace.
#[derive(Clone, Debug, Default)]
pub struct SandboxFolders {
    /// Files and folders to read. Files of the workspace that rules ask about can be read if they are named here.
    pub readable: Vec<PathBuf>,
    /// Folders to write, in [`Profile::Workspace`](aye_sandbox::Profile::Workspace).
    pub writable: Vec<PathBuf>,
    /// The folder in which each conversation's `/tmp` is kept.
    pub tmp: PathBuf,
    /// The folder in which package managers keep their downloads, in [`Profile::Workspace`](aye_sandbox::Profile::Workspace).
    pub caches: PathBuf,
    /// The folder of the downloads that commands find at the user's paths. They must not reach it at its own.
    pub linked: PathBuf,
    /// Domains to reach, in [`Profile::Workspace`](aye_sandbox::Profile::Workspace) where the machine has namespaces.
    pub domains: Vec<DomainPattern>,
    /// Unix sockets of the project that commands may connect to.
    pub unix_sockets: Vec<PathBuf>,
    /// The folder for the sockets of commands in namespaces.
    pub sockets: PathBuf,
    /// The folder for long output. Commands can read that of their own conversation.
    pub output: PathBuf,
    /// The project's folder: links in it open nothing outside.
    pub project: Option<PathBuf>,
    /// What one command may take from the machine.
    pub limits: SandboxLimits,
    /// Whether the user trusts the project with the repository that it is a linked worktree of.
    pub opens_repository: bool,
    /// Aye's own folders. Without a sandbox for what contains one, no command can change its own rules.
    pub own: Vec<PathBuf>,
}

/// What one command may take from the machine; `None` is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct SandboxLimits {
    /// Processes and threads at once, on a machine with up to 16 cores; in proportion to the cores on others.
    pub processes: Option<u64>,
    /// Memory, in percent of the machine's.
    pub memory_percent: Option<u64>,
    /// Temporary files, in MiB.
    pub tmp_mib: Option<u64>,
}

/// Builds start about as many processes as there are cores.
const FEW_CORES: u64 = 16;

impl SandboxLimits {
    pub(super) fn processes(&self) -> u64 {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        self.processes.map_or(u64::MAX, |most| most.saturating_mul((cores / FEW_CORES).max(1)))
    }

    pub(super) fn memory(&self) -> u64 {
        let limit = self
            .memory_percent
            .zip(aye_platform::memory_bytes())
            .map(|(percent, bytes)| bytes / 100 * percent);
        limit.unwrap_or(u64::MAX)
    }

    pub(super) fn tmp(&self) -> Option<u64> {
        self.tmp_mib.map(|mib| mib << 20)
    }
}

impl SandboxFolders {
    /// Removes what no command of a project or conversation has used for a time: downloads and temporary files.
    pub fn remove_unused(cache_dir: &Path, age: Duration) {
        for name in ["tmp", "packages", "linked"] {
            match remove_unused(&cache_dir.join(name), age) {
                Ok(0) => {}
                Ok(gone) => tracing::info!(gone, name, "old files of sandboxed commands were removed"),
                Err(error) => {
                    tracing::warn!(%error, name, "old files of sandboxed commands cannot be removed");
                }
            }
        }
    }
}

/// Creates a folder that no other user can enter, whatever the umask, and returns its path without links.
pub(super) fn private_folder(path: &Path) -> Result<PathBuf, NotConfined> {
    let made = PrivateFolder::make(path).map(|folder| folder.path().to_owned());
    made.map_err(|error| NotConfined::Folder { path: path.to_owned(), error })
}

/// The same, and marks it as used.
pub(super) fn used_folder(path: &Path) -> Result<PathBuf, NotConfined> {
    let made = PrivateFolder::make(path).map(|folder| {
        // Without the mark it is removed when it has existed for long enough.
        let _ = folder.touch();
        folder.path().to_owned()
    });
    made.map_err(|error| NotConfined::Folder { path: path.to_owned(), error })
}
