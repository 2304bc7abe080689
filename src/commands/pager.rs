//! Long lists on a terminal: one screenful is printed, more goes through a pager. Elsewhere everything goes to
//! stdout.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::process::{Child, Command, Stdio};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::Env;
use crate::failure::Failure;
use crate::program::put_or_stop;
use crate::tools::exec::is_in_path;

/// The options of `less` unless `LESS` is set: text that fits is not paged, colours stay, the screen is not
/// cleared.
const LESS: &str = "FRX";

/// The output of a list.
pub(crate) struct Pager {
    /// The command of a pager, until one is needed.
    program: Option<String>,
    rows: usize,
    /// The lines so far, while they fit on the screen.
    held: String,
    started: Option<Started>,
}

struct Started {
    child: Child,
    /// Ignores Ctrl-C while the pager runs: the key is the pager's.
    _interrupts: Option<Signal>,
}

impl Pager {
    pub(crate) fn new(env: &Env) -> Pager {
        let rows = rustix::termios::tcgetwinsize(rustix::stdio::stdout())
            .ok()
            .map_or(0, |size| usize::from(size.ws_row));
        let is_terminal = std::io::stdout().is_terminal() && rows > 0;
        let program = is_terminal.then(|| program(env)).flatten();
        Pager { program, rows, held: String::new(), started: None }
    }

    /// Returns whether the list is read as it is written, so that it need not be complete at once.
    pub(crate) fn is_paged(&self) -> bool {
        self.program.is_some() || self.started.is_some()
    }

    /// Writes lines; returns `false` if nobody reads the output any more.
    pub(crate) fn write(&mut self, text: &str) -> Result<bool, Failure> {
        if let Some(started) = &mut self.started {
            let Some(input) = started.child.stdin.as_mut() else { return Ok(false) };
            return Ok(input.write_all(text.as_bytes()).is_ok());
        }
        if self.program.is_none() {
            return put_or_stop(text);
        }
        self.held.push_str(text);
        // One row stays for the prompt of the shell.
        if self.held.lines().count() < self.rows {
            return Ok(true);
        }
        let held = std::mem::take(&mut self.held);
        match self.program.take().and_then(start) {
            Some(started) => {
                self.started = Some(started);
                self.write(&held)
            }
            None => put_or_stop(&held),
        }
    }

    /// Writes the rest and waits for the reader.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if let Some(mut started) = self.started.take() {
            drop(started.child.stdin.take());
            let _ = started.child.wait();
            return Ok(());
        }
        put_or_stop(&self.held).map(drop)
    }
}

/// Returns `PAGER`, or `less` if it exists; an empty `PAGER` or `cat` means no pager.
fn program(env: &Env) -> Option<String> {
    match env.var("PAGER").map(str::trim) {
        Some("" | "cat") => None,
        Some(program) => Some(program.to_owned()),
        None => {
            let path = OsStr::new(env.var("PATH").unwrap_or_default());
            is_in_path(path, "less").then(|| "less".to_owned())
        }
    }
}

fn start(program: String) -> Option<Started> {
    let interrupts = signal(SignalKind::interrupt()).ok();
    let mut command = Command::new("sh");
    command.arg("-c").arg(program).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    match command.spawn() {
        Ok(child) => Some(Started { child, _interrupts: interrupts }),
        Err(error) => {
            tracing::warn!(%error, "the pager could not be started");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pager_comes_from_the_environment() {
        let of = |vars: &[(&str, &str)]| program(&Env::of(vars, "/", "/"));
        assert_eq!(of(&[("PAGER", "more -d")]).as_deref(), Some("more -d"));
        assert_eq!(of(&[("PAGER", " cat ")]), None);
        assert_eq!(of(&[("PAGER", "")]), None);
        let tools = tempfile::tempdir().unwrap();
        let path = tools.path().to_string_lossy().into_owned();
        assert_eq!(of(&[("PATH", &path)]), None);
        std::fs::write(tools.path().join("less"), "").unwrap();
        assert_eq!(of(&[("PATH", &path)]), None, "a file that cannot be run");
        std::fs::remove_file(tools.path().join("less")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", tools.path().join("less")).unwrap();
        assert_eq!(of(&[("PATH", &path)]).as_deref(), Some("less"));
    }
}
