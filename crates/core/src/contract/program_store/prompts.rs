//! The history of prompts.

use std::path::Path;

use async_trait::async_trait;

use crate::contract::storage::StoreError;

/// Keeps what was typed, for the composer's history.
#[async_trait]
pub trait PromptStore: Send + Sync {
    /// Remembers what was typed in a folder. The same text again only moves to the front; blank text is not kept. It need
    /// not wait for the disk: the message that follows does.
    async fn remember_prompt(&self, cwd: &Path, text: &str) -> Result<(), StoreError>;

    /// The prompts typed in all folders, newest first, each text once.
    async fn all_prompts(&self, limit: usize) -> Result<Vec<String>, StoreError>;
}
