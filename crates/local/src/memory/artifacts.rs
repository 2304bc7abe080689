//! Output that does not fit into a result.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::InMemoryStore;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::storage::{ArtifactStore, StoreError, artifact_name, check_artifact};

/// Where the paths begin: there is no such folder.
const FOLDER: &str = "/aye-output";

#[async_trait]
impl ArtifactStore for InMemoryStore {
    async fn keep_artifact(
        &self,
        thread: &ThreadId,
        name: &str,
        content: Vec<u8>,
    ) -> Result<PathBuf, StoreError> {
        check_artifact(name, &content)?;
        let key = (thread.clone(), name.to_owned());
        self.write(|rows| {
            rows.artifacts.entry(key).or_insert_with(|| Arc::new(content));
            Ok(())
        })?;
        // An id may come from outside.
        Ok(Path::new(FOLDER).join(&sha256_hex(thread.as_str().as_bytes())[..16]).join(name))
    }

    async fn artifact(&self, thread: &ThreadId, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(name) = artifact_name(path) else { return Ok(None) };
        let key = (thread.clone(), name.to_owned());
        self.read(|rows| rows.artifacts.get(&key).map(|content| Vec::clone(content)))
    }
}
