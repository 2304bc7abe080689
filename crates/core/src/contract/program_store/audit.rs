//! The audit as a program reads it.

use std::path::PathBuf;

use serde_json::Value;

use crate::contract::ids::{CallId, RunId};

/// A call that met the rules once.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentCall {
    /// Its run and its id.
    pub id: (RunId, CallId),
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
    /// The folder it was to run in.
    pub cwd: PathBuf,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// Whether the user denied the call.
    pub declined: bool,
}
