//! The composition root: reads the settings and assembles the parts that a command or a front end works with.

pub(crate) mod agents;
pub(crate) mod app_context;
pub(crate) mod budget;
pub(crate) mod checkout;
pub(crate) mod checks;
pub(crate) mod context;
pub(crate) mod deferred;
pub(crate) mod dialler;
pub(crate) mod environment;
pub(crate) mod export;
pub(crate) mod folder_instructions;
pub(crate) mod foundation;
pub(crate) mod gate;
pub(crate) mod git;
pub(crate) mod git_index;
pub(crate) mod goal;
pub(crate) mod grants;
pub(crate) mod hooks;
pub(crate) mod init;
pub(crate) mod installer;
pub(crate) mod keyring;
pub(crate) mod keys;
pub(crate) mod links;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod moved;
pub(crate) mod notify;
pub(crate) mod opener;
pub(crate) mod own_commands;
pub(crate) mod panics;
pub(crate) mod parts;
pub(crate) mod permit;
pub(crate) mod plugins;
pub(crate) mod programs;
pub(crate) mod prompt;
pub(crate) mod published;
pub(crate) mod reminders;
pub(crate) mod secrets;
pub(crate) mod sections;
pub(crate) mod snapshots;
pub(crate) mod telemetry;
pub(crate) mod webhook;
pub(crate) mod worktree_agents;
pub(crate) mod worktrees;

use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::failure::Failure;

/// The zone that times are shown in.
pub(crate) fn zone() -> jiff::tz::TimeZone {
    crate::config::local_zone(std::env::var_os("TZ").is_some())
}

/// Writes a line to stderr. Foreign text in it is made visible first.
pub(crate) fn put_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", crate::contract::display::visible(text));
}

/// Writes to stdout; fails if the text cannot be written, except if nobody reads the output any more.
pub(crate) fn put(text: &str) -> Result<(), Failure> {
    put_or_stop(text).map(drop)
}

/// Does the same; returns `false` if nobody reads the output any more, so that a long text can end there.
pub(crate) fn put_or_stop(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to stdout: {error}")))
        }
        written => Ok(written.is_ok()),
    }
}

/// Asks on the command line; anything but yes means no.
pub(crate) fn ask(question: &str) -> Result<bool, Failure> {
    put(question)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Failure::failed)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Writes a file of a project, readable by anyone who can read the project. A temporary file is renamed, so that no partial
/// file is left, and a link is replaced, not followed.
pub(crate) fn write_shared(file: &Path, text: &str) -> Result<(), Failure> {
    let fail =
        |error: std::io::Error| Failure::failed(format!("{} cannot be written: {error}", file.display()));
    let mut new = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(Path::new("."))).map_err(fail)?;
    new.write_all(text.as_bytes()).map_err(fail)?;
    new.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(fail)?;
    new.persist(file).map_err(|error| fail(error.error))?;
    Ok(())
}
