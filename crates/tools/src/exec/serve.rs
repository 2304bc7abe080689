//! Programs that are spoken with over their standard input and output for as long as aye runs: tool servers.
//!
//! Such a program gets a supervisor of its own as commands do (see [`supervise_main`](super::supervise_main)), with one
//! difference: its standard input is the conversation and the lifeline at once. When aye closes it, or dies, the server
//! may end by itself for a moment, then TERM and KILL go to everything that it started.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{EnvVars, ExecConfig};

/// What stands where the duty of a supervisor of a command stands.
pub(super) const SERVE_WORD: &str = "serve";

/// The command that starts a server with pipes for its input, its output and what it complains about. On Linux it is
/// supervised; elsewhere it is a group of its own that whoever drops it has to end.
pub fn server_command(
    config: &ExecConfig,
    program: &(impl AsRef<OsStr> + ?Sized),
    args: Vec<OsString>,
    cwd: &Path,
    env: &EnvVars,
) -> Command {
    let supervisor = config.supervisor.as_ref().filter(|_| cfg!(target_os = "linux"));
    let program = program.as_ref();
    let mut command = Command::new(supervisor.map_or(program, |own| own.as_os_str()));
    if supervisor.is_some() {
        command
            .arg(super::SUPERVISE_ARG)
            .arg(SERVE_WORD)
            .arg(config.grace.as_millis().to_string())
            .arg(program);
    } else {
        command.process_group(0);
    }
    command.args(args).current_dir(cwd).env_clear().envs(env);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
