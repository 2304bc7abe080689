//! The environment of a program: values that only the composition root may read.

use std::path::PathBuf;

/// The folder a thread works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Working directory, absolute, links resolved.
    pub cwd: PathBuf,
    /// The repository's root, or the working directory if there is none. Writes inside this folder may be
    /// allowed broadly.
    pub root: PathBuf,
    /// The user's home directory, for `~` in patterns and paths.
    pub home: PathBuf,
}
