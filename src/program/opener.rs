//! Opens URLs and files in the programs that the user's desktop has for them.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::config::Env;

/// Passes a URL or a file to the platform's opener. Returns `false` if the machine has no desktop.
///
/// # Errors
/// The opener cannot be started.
pub(crate) fn open(env: &Env, what: &OsStr) -> std::io::Result<bool> {
    let program = if aye_platform::SYSTEM == aye_platform::System::MacOs {
        "open"
    } else if ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env.has(name)) {
        "xdg-open"
    } else {
        return Ok(false);
    };
    let mut command = Command::new(program);
    command.arg(what).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    std::thread::spawn(move || child.wait());
    Ok(true)
}
