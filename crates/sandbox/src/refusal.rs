//! [`SandboxRefusal`]: what a command did not get.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An access that the sandbox refused to a command, as far as is known. The details of a Bash result list
/// them as `refused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxRefusal {
    /// A domain that `sandbox.domains` does not list.
    Domain(String),
    /// A file or folder, to change it or to see it.
    Path(PathBuf),
    /// Something else, in the words of the program.
    Other(String),
}
