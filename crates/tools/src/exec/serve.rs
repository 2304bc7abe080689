//! Programs that aye communicates with over their standard input and output for as long as it runs: MCP
//! servers.
//!
//! Such a program gets its own supervisor, as commands do (see [`supervise_main`](super::supervise_main)),
//! with one difference: its standard input is the connection and the lifeline at once. When aye closes it, or
//! dies, the server is given a moment to end on its own; then TERM and KILL are sent to everything that it
//! started.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{EnvVars, ExecConfig};

/// The word in place of the spec that a supervisor of a command gets.
pub(super) const SERVE_WORD: &str = "serve";

/// Returns the command that starts a server with pipes for its input, its output and its errors. With a
/// supervisor, nothing of the server outlives aye; otherwise it is in its own process group, which the caller has to end.
pub fn server_command(
    config: &ExecConfig,
    program: &(impl AsRef<OsStr> + ?Sized),
    args: Vec<OsString>,
    cwd: &Path,
    env: &EnvVars,
) -> Command {
    let supervisor = config.supervisor.as_ref();
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
