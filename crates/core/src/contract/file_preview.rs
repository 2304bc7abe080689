//! What a call does to a file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The effect of a call on one file: shown on the card, stored with the intent, and compared after a crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilePreview {
    /// The file, absolute, links resolved.
    pub path: PathBuf,
    /// SHA-256 of the bytes before, hex; `None` when the file is not there.
    pub before: Option<String>,
    /// SHA-256 of the bytes after, hex.
    pub after: String,
    /// The text before, when it is text and not too long to show (256 KiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_text: Option<String>,
    /// The text after, under the same limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_text: Option<String>,
}

/// The state of a file when the user approved a call that changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreedFile {
    /// The file, absolute, links resolved.
    pub path: PathBuf,
    /// SHA-256 of its bytes, hex; `None` when it was not there.
    pub before: Option<String>,
}
