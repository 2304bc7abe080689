//! Runs programs so that nothing of them is left when the call is over, whichever way it ends.
//!
//! [`run`] is the one way in, for the Bash tool and for scripts of skills. Given a supervisor (aye's own binary, see
//! [`supervise_main`]), not even `kill -9` of aye leaves something running; without one, an embedder gets a process
//! group that is killed when the future is dropped.

mod capture;
mod env;
mod freeze;
mod git;
mod limits;
mod live;
mod plain;
mod pty;
mod run;
mod serve;
mod spec;
mod supervisor;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aye_core::contract::tool::SpawnContext;

pub(crate) use capture::{Spill, private_file};
pub use env::{EnvVars, child_env, confined_env, holds_password, is_secret};
pub(crate) use env::{is_own_key, missed, named_env};
pub use freeze::Frozen;
pub(crate) use freeze::{Freezer, Live};
pub use git::{GIT_SETTINGS, GIT_VARIABLES, GitGuardError, guard_git, harmless};
pub use limits::{CommandLimits, ControlGroups};
pub(crate) use plain::plain_pieces;
pub(crate) use pty::{Terminal, TerminalSize, open as open_terminal};
pub(crate) use run::{OutputPart, run_in_terminal, run_timeless};
pub use run::{ProgramOutput, converse, end_of_run, run};
pub use serve::server_command;
pub use supervisor::{SUPERVISE_ARG, SupervisorReport, supervise_main};

/// Whether a folder of `path`, a value of `PATH`, has a program of this name.
pub fn is_in_path(path: &OsStr, name: &str) -> bool {
    std::env::split_paths(path).any(|folder| {
        let about = folder.join(name).metadata();
        about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    })
}

/// The settings for running programs.
#[derive(Clone, Debug)]
pub struct ExecConfig {
    /// aye's own binary, best as [`aye_platform::own_program`] gives it. `None` when the program is not
    /// aye: then a `kill -9` of it leaves commands running.
    pub supervisor: Option<PathBuf>,
    /// The timeout of a command if the call does not set one.
    pub default_timeout: Duration,
    /// The longest timeout that a call may request.
    pub max_timeout: Duration,
    /// The number of bytes of output that the model reads; the rest is in a file.
    pub max_output: usize,
    /// Between TERM and KILL.
    pub grace: Duration,
}

impl Default for ExecConfig {
    fn default() -> Self {
        Self {
            supervisor: None,
            default_timeout: Duration::from_mins(2),
            max_timeout: Duration::from_mins(10),
            max_output: 30_000,
            grace: Duration::from_secs(2),
        }
    }
}

/// One program to run. Its stdin is `/dev/null`; stdout and stderr are one stream.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The program, looked up in `PATH` of `env` when it has no slash.
    pub program: OsString,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// All of its environment: see [`child_env`].
    pub env: EnvVars,
    /// How long it may run.
    pub timeout: Duration,
    /// Maximum bytes of output to keep, head and tail.
    pub max_output: usize,
    /// The folder in which longer output is stored, as a separate file; `None` if it is dropped.
    pub output_dir: Option<PathBuf>,
    /// For whom it runs.
    pub on_behalf: SpawnContext,
    /// Where `args` start aye again, if the program makes namespaces for it: see [`aye_sandbox::Launch::launcher`].
    pub launcher: Option<usize>,
    /// What it may take from the machine, in the sandbox.
    pub limits: Option<Arc<CommandLimits>>,
    /// Other commands that stand still until this one has started.
    pub frozen: Option<Arc<Frozen>>,
}

/// The result of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// The program's output: without escape sequences, progress bars collapsed, the middle left out if it is
    /// too long.
    pub output: String,
    /// Bytes it wrote, counted in the same way.
    pub total_bytes: u64,
    /// Whether part of the output is missing from `output`.
    pub truncated: bool,
    /// The file with the whole output, when `output` leaves something out.
    pub output_file: Option<PathBuf>,
    /// Its exit status, when it exited.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It ran longer than it may.
    pub timed_out: bool,
    /// The call was cancelled while it ran.
    pub cancelled: bool,
    /// The program killed its supervisor; every process of it that was found was killed too.
    pub supervisor_lost: bool,
    /// The limit that it met, for which it was stopped.
    pub over_limit: Option<String>,
    /// Processes that outlived it and were killed.
    pub left_behind: Vec<String>,
    /// How long it ran.
    pub duration: Duration,
    /// Other notes that the model and the user need.
    pub notes: Vec<String>,
}

impl ExecResult {
    /// Whether the program exited with status 0 in time.
    pub fn is_success(&self) -> bool {
        let is_stopped =
            self.timed_out || self.cancelled || self.supervisor_lost || self.over_limit.is_some();
        self.exit_code == Some(0) && !is_stopped
    }
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It could not be started.
    #[error("cannot start {program}: {reason}")]
    Start {
        program: String,
        /// The system's error message.
        reason: String,
    },
    /// No pipe, no process.
    #[error("cannot run a program")]
    Io(#[from] std::io::Error),
}

/// Output as a model reads it: without escape sequences, progress bars collapsed, the middle left out when it is longer
/// than `limit` bytes.
///
/// The output may continue a line that was read before: what its first line has up to a carriage return is kept.
pub fn as_read(output: &str, limit: usize) -> String {
    let mut text = String::with_capacity(output.len());
    plain::Plain::default().push(output, &mut text);
    let mut capture = capture::Capture::continued(limit);
    capture.push(&text);
    capture.finish().text
}

/// The name of a signal, such as `SIGKILL`.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.into()
}
