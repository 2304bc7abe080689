//! The editor that a conversation is held in, as far as tools reach it.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;

/// Reads files as an editor has them open.
#[async_trait]
pub trait EditorFiles: Send + Sync {
    /// Returns the text of a file with the changes that are not saved. `None`: the editor does not say.
    async fn text(&self, path: &Path) -> Option<String>;
}

/// The editor of a conversation, once it is known; most conversations have none.
pub type EditorSlot = Arc<OnceLock<Arc<dyn EditorFiles>>>;
