//! The interface to the program runner: a plugin starts no programs itself.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::tool::ToolCallContext;

/// Time that a script may take.
pub const SCRIPT_TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes of its output that are kept.
pub const SCRIPT_MAX_OUTPUT: usize = 32 * 1024;

/// A script to run: own process group, no stdin, an environment without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRequest {
    /// The interpreter, looked up in `PATH`.
    pub program: String,
    /// Its arguments, the script among them.
    pub args: Vec<String>,
    pub cwd: PathBuf,
    /// Variables to add to the environment.
    pub env: Vec<(String, String)>,
    /// Then the whole group is killed.
    pub timeout: Duration,
    /// Bytes of each stream, or of both together, that are kept.
    pub max_output: usize,
}

/// The result of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptOutput {
    /// The script's output, truncated and marked.
    pub output: String,
    /// Its exit status; `None` when a signal or the timeout ended it.
    pub exit_code: Option<i32>,
    /// For users: how the script was terminated if it did not exit on its own: `killed after 60 s`,
    /// `signal SIGSEGV`.
    pub ended: Option<String>,
    /// Other things that the model and the user must know.
    pub notes: Vec<String>,
}

/// Why a script was not run, in words for the model.
#[derive(Debug, thiserror::Error)]
pub enum ScriptNotRun {
    /// The kernel cannot keep it to its profile.
    #[error("not run: {0}")]
    NotConfined(#[source] ForeignError),
    /// The script was not started, or its outcome is unknown.
    #[error("{0}")]
    NotStarted(#[source] ForeignError),
}

/// Runs scripts. Dropping the future leaves nothing running.
#[async_trait]
pub trait ScriptRunner: Send + Sync {
    /// Runs one for a call, in the profile of its verdict.
    ///
    /// # Errors
    /// Why it was not started.
    async fn run(&self, request: ScriptRequest, ctx: &ToolCallContext) -> Result<ScriptOutput, ScriptNotRun>;
}
