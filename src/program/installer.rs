//! The installer of aye's packages, and the newest version that it finds.

use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::config::{UpgradeSettings, read_private, write_private};
use crate::contract::display::visible;
use crate::failure::Failure;

/// Looks for packages, checks their sum and replaces a program in one step.
const SCRIPT: &str = include_str!("../../install.sh");
/// How long a version that was found counts as the newest.
const DAY: Duration = Duration::from_hours(24);
/// Bytes of a version, at most.
const MAX_VERSION: u64 = 100;

/// Returns a sentence about a newer version where `upgrade.url` has one and `upgrade.check` asks for it. The address is
/// asked once a day at most, as `file` shows; one that does not answer is worth no sentence.
pub(crate) async fn notice(settings: UpgradeSettings, file: PathBuf) -> Option<String> {
    let url = settings.url.filter(|_| settings.check)?;
    let written = file.metadata().and_then(|about| about.modified()).ok();
    let is_recent = written.is_some_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age < DAY));
    let newest = if is_recent {
        read_private(&file, MAX_VERSION).ok()??
    } else {
        let found = script(&["--newest", &url]).await;
        // An address that does not answer is asked again tomorrow, too.
        let found = found.unwrap_or_else(|failure| {
            tracing::warn!(error = %failure.message, "cannot look for a newer version");
            String::new()
        });
        if let Err(error) = write_private(&file, found.trim().as_bytes()) {
            tracing::warn!(%error, "the newest version cannot be kept");
        }
        found
    };
    let (newest, current) = (newest.trim(), env!("CARGO_PKG_VERSION"));
    is_newer(newest, current)
        .then(|| format!("aye {newest} is there; this is {current} · `aye upgrade` in a shell installs it"))
}

/// Runs the installer and returns what it printed.
pub(crate) async fn script(args: &[&str]) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("the installer cannot be run: {error}"));
    let mut shell = Command::new("/bin/sh")
        .args(["-s", "--"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = shell.stdin.take() {
        stdin.write_all(SCRIPT.as_bytes()).await.map_err(failed)?;
    }
    let Output { status, stdout, stderr } = shell.wait_with_output().await.map_err(failed)?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&stderr).replace("install.sh: ", "");
    Err(Failure::failed(visible(why.trim_end())))
}

/// Whether a version comes after another; what is no version does not.
pub(crate) fn is_newer(version: &str, than: &str) -> bool {
    let parts = |text: &str| {
        let parts: Option<Vec<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
        parts.filter(|parts| parts.len() == 3)
    };
    matches!((parts(version), parts(than)), (Some(version), Some(than)) if version > than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_version_is_newer() {
        for (version, than) in [("0.2.1", "0.2.0"), ("0.10.0", "0.9.9"), ("1.0.0", "0.99.99")] {
            assert!(is_newer(version, than) && !is_newer(than, version), "{version} {than}");
        }
        for text in ["0.2.0", "", "latest", "0.3", "0.3.0.1", "0.3.0-rc1"] {
            assert!(!is_newer(text, "0.2.0"), "{text}");
        }
    }
}
