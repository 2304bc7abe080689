//! The log: a file, never the terminal. Off the thread that draws.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;

/// The maximum lines waiting to be written to disk; further ones are lost.
const MAX_WAITING: usize = 1024;

/// Whether `--debug` was given.
static IS_DEBUG: AtomicBool = AtomicBool::new(false);

/// Logs everything from now on, unless `AYE_LOG` says otherwise.
pub(crate) fn set_debug() {
    IS_DEBUG.store(true, Ordering::Relaxed);
}

/// Writes logs to `aye.log` in the folder until the guard is dropped. The level is taken from `AYE_LOG`; the
/// default is `warn`, and `debug` with `--debug`. A log that cannot be written does not prevent a start.
pub fn to_file(dir: &Path) -> Option<WorkerGuard> {
    crate::config::create_private_dir(dir).ok()?;
    private(&dir.join("aye.log"))?;
    let appender = tracing_appender::rolling::RollingFileAppender::builder()
        .rotation(tracing_appender::rolling::Rotation::NEVER)
        .filename_prefix("aye.log")
        .build(dir)
        .ok()?;
    // The library's own size is 128,000 lines: 4 MiB that are written to at every start.
    let builder =
        tracing_appender::non_blocking::NonBlockingBuilder::default().buffered_lines_limit(MAX_WAITING);
    // It panics when the system gives no thread.
    let (writer, guard) = std::panic::catch_unwind(AssertUnwindSafe(|| builder.finish(appender))).ok()?;
    let level = if IS_DEBUG.load(Ordering::Relaxed) { "debug" } else { "warn" };
    let filter = EnvFilter::try_from_env("AYE_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    // At its most talkative it writes down what a login is got with.
    let filter = filter.add_directive("rmcp::transport::auth=warn".parse().ok()?);
    tracing_subscriber::fmt().with_writer(writer).with_ansi(false).with_env_filter(filter).try_init().ok()?;
    Some(guard)
}

/// Creates the file if it does not exist, and makes it readable only by the user, whatever the umask.
fn private(path: &Path) -> Option<()> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    if path.symlink_metadata().is_ok_and(|about| !about.is_file()) {
        return None;
    }
    let file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path).ok()?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600)).ok()
}
