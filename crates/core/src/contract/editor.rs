//! The editor that a conversation is held in, as far as tools reach it.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;

/// Reads and writes files as an editor has them open.
#[async_trait]
pub trait EditorFiles: Send + Sync {
    /// Returns the text of a file with the changes that are not saved. `None`: the editor does not say.
    async fn text(&self, path: &Path) -> Option<String>;

    /// Makes a text the content of a file, in the editor and on disk. Returns `false` if the editor did not do it.
    async fn save(&self, path: &Path, text: String) -> bool;
}

/// The editor of a conversation, once it is known; most conversations have none.
pub type EditorSlot = Arc<OnceLock<Arc<dyn EditorFiles>>>;
