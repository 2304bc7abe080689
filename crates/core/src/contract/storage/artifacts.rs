//! Output that does not fit into a result.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::StoreError;
use crate::contract::ids::ThreadId;

/// The maximum number of bytes of one artifact: 16 MiB.
pub const MAX_ARTIFACT: usize = 16 << 20;
/// The longest name.
const LONGEST_NAME: usize = 100;

/// Keeps output that does not fit into a result, for the model to read by its path. What was kept for one conversation is not
/// found by another one. A name has one content: nothing is replaced.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Keeps content under a name, which [`check_artifact`] accepts, and returns its path. Whoever resumes the conversation
    /// finds it by that path, with [`ArtifactStore::artifact`] where there is no such file. Keeping it again is not an error.
    ///
    /// # Errors
    /// [`StoreError::Unwritable`] for what [`check_artifact`] refuses; see [`StoreError`] for the rest.
    async fn keep_artifact(
        &self,
        thread: &ThreadId,
        name: &str,
        content: Vec<u8>,
    ) -> Result<PathBuf, StoreError>;

    /// The content that a conversation has under the last part of a path. `None` if there is none, whatever the path.
    async fn artifact(&self, thread: &ThreadId, path: &Path) -> Result<Option<Vec<u8>>, StoreError>;
}

/// Refuses a name that is not one of a file (letters, digits, `-`, `_` and dots inside), and content that is too long.
///
/// # Errors
/// [`StoreError::Unwritable`].
pub fn check_artifact(name: &str, content: &[u8]) -> Result<(), StoreError> {
    let unwritable = |why| StoreError::Unwritable { what: "an output", why };
    if artifact_name(Path::new(name)) != Some(name) {
        return Err(unwritable(format!(
            "`{}` is not a name; expected one such as result-1.txt",
            name.escape_debug()
        )));
    }
    if content.len() > MAX_ARTIFACT {
        return Err(unwritable(format!("it has {} bytes; at most {MAX_ARTIFACT} are kept", content.len())));
    }
    Ok(())
}

/// The name of the artifact that a path may lead to.
pub fn artifact_name(path: &Path) -> Option<&str> {
    let is_part = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    path.file_name()
        .and_then(OsStr::to_str)
        .filter(|name| name.len() <= LONGEST_NAME && !name.starts_with('.') && name.bytes().all(is_part))
}
