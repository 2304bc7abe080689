use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::state::StateError;

/// Runs code of a plugin; a panic becomes an error that names the code.
///
/// Plugins see snapshots and hand back values, so nothing of ours can be left half-done by an unwinding.
pub(super) async fn guarded<T>(
    what: impl FnOnce() -> String,
    future: impl Future<Output = T>,
) -> Result<T, StateError> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|panic| StateError::panicked(what(), &*panic))
}
