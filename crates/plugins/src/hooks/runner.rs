//! The interface to whatever runs programs: a plugin starts none itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::config::HookSpec;
use aye_core::contract::address::DomainPattern;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::judgement::Profile;
use aye_core::contract::tool::SpawnContext;

/// Bytes of a command's stderr that are kept.
pub const MAX_STDERR: usize = 8 * 1024;

/// A command to run: a process group of its own, an environment without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRequest {
    /// The program, looked up in `PATH` when it has no slash.
    pub program: PathBuf,
    pub args: Vec<String>,
    pub cwd: PathBuf,
    /// Variables to add to the environment.
    pub env: Vec<(String, String)>,
    /// The data for its stdin.
    pub input: Vec<u8>,
    /// Then the whole group is killed.
    pub timeout: Duration,
    pub on_behalf: SpawnContext,
    /// The restrictions that the kernel enforces.
    pub profile: Profile,
    /// The domains that it may reach.
    pub domains: Vec<DomainPattern>,
}

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookOutput {
    pub stdout: String,
    /// Whether the stdout is truncated.
    pub is_cut: bool,
    /// The command's stderr, truncated and marked as such.
    pub stderr: String,
    /// Its exit status; `None` when a signal or the time limit ended it.
    pub exit_code: Option<i32>,
    /// The way the command ended, if not on its own, for users: `stopped after 10 s`, `signal SIGSEGV`.
    pub ended: Option<String>,
}

/// Why a hook's command was not run.
#[derive(Debug, thiserror::Error)]
pub enum HookNotRun {
    /// The kernel cannot keep it to its profile.
    #[error("{0}")]
    NotConfined(#[source] ForeignError),
    /// The command was not started, or its outcome is unknown.
    #[error("{0}")]
    NotStarted(#[source] ForeignError),
}

/// Runs commands. Dropping the future leaves nothing running.
#[async_trait]
pub trait HookRunner: Send + Sync {
    /// Runs one.
    ///
    /// # Errors
    /// Why it was not started.
    async fn run(&self, request: HookRequest, cancel: &CancellationToken) -> Result<HookOutput, HookNotRun>;
}

/// Returns the request to run a hook's command. `cwd` is the working folder of the run, `home` the folder
/// that `~/` stands for.
pub fn request(
    hook: &HookSpec,
    cwd: &Path,
    home: &Path,
    input: Vec<u8>,
    on_behalf: SpawnContext,
) -> HookRequest {
    let (program, args) = hook.command.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    let place = hook.folder.as_deref().unwrap_or(cwd);
    let program = match program.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        // A program with a slash is a path: relative to the project, whatever folder below it the run works
        // in.
        None if program.contains('/') => place.join(program),
        None => program.into(),
    };
    HookRequest {
        program,
        args: args.to_vec(),
        cwd: place.to_path_buf(),
        env: ["AYE_PROJECT_DIR", "CLAUDE_PROJECT_DIR"]
            .map(|name| (name.to_owned(), cwd.to_string_lossy().into_owned()))
            .to_vec(),
        input,
        timeout: hook.timeout,
        on_behalf,
        profile: hook.layer.profile(),
        domains: hook.domains.clone(),
    }
}
