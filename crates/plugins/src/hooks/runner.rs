//! The seam to whatever runs programs: a plugin starts none itself.

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
    /// Its arguments.
    pub args: Vec<String>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Variables to add to the environment.
    pub env: Vec<(String, String)>,
    /// What it reads on its stdin.
    pub input: Vec<u8>,
    /// Then the whole group is killed.
    pub timeout: Duration,
    /// For whom.
    pub on_behalf: SpawnContext,
    /// What the kernel keeps it to.
    pub profile: Profile,
    /// The domains that it may reach.
    pub domains: Vec<DomainPattern>,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookOutput {
    /// What it wrote to stdout.
    pub stdout: String,
    /// Whether that is only the beginning.
    pub is_cut: bool,
    /// What it wrote to stderr, cut and marked.
    pub stderr: String,
    /// Its exit status; `None` when a signal or the time limit ended it.
    pub exit_code: Option<i32>,
    /// How it ended when not by itself, for people: `stopped after 10 s`, `signal SIGSEGV`.
    pub ended: Option<String>,
}

/// Why a hook's command was not run.
#[derive(Debug, thiserror::Error)]
pub enum HookNotRun {
    /// The kernel cannot keep it to its profile.
    #[error("{0}")]
    NotConfined(#[source] ForeignError),
    /// It was not started, or what became of it is not known.
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

/// What is to be run for a hook. `cwd` is where the run works, `home` what `~/` stands for.
///
/// # Errors
/// When there is no home folder for `~/`.
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
        // With a slash it is a place: of the project, whatever folder below it the run works in.
        None if program.contains('/') => place.join(program),
        None => program.into(),
    };
    HookRequest {
        program,
        args: args.to_vec(),
        cwd: place.to_path_buf(),
        env: vec![("AYE_PROJECT_DIR".to_owned(), cwd.to_string_lossy().into_owned())],
        input,
        timeout: hook.timeout,
        on_behalf,
        profile: hook.layer.profile(),
        domains: hook.domains.clone(),
    }
}
