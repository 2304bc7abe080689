//! Why the program did not do what a front end or a command asked for, in words and as an exit status.

use crate::config::{SelectError, TrustError};
use crate::contract::storage::StoreError;
use crate::mcp::McpServerError;
use crate::plugins::skills::NotUserInvocable;
use crate::runtime::RuntimeError;
use crate::snapshots::SnapshotError;
use crate::tools::NotConfined;

/// Why a start or a command ended, and with which exit status.
#[derive(Debug)]
pub struct Failure {
    /// The sentence for the user.
    pub message: String,
    /// 1 failed, 2 usage, 3 waiting, 4 blocked, 75 provider unavailable, ...
    pub exit: u8,
}

impl Failure {
    pub(crate) fn failed(message: impl ToString) -> Self {
        Self { message: message.to_string(), exit: 1 }
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self { message: message.to_string(), exit: 2 }
    }
}

/// Why something was not done. Only the last variant has its own text; the others pass on the error of a part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppError {
    /// The store could not read or write it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The runtime refused it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A snapshot cannot be read or stored.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// An MCP server did not do it.
    #[error(transparent)]
    Server(#[from] McpServerError),
    /// Git did not answer.
    #[error(transparent)]
    Git(Box<dyn std::error::Error + Send + Sync>),
    /// The kernel cannot enforce a program's profile.
    #[error(transparent)]
    NotConfined(#[from] NotConfined),
    /// The folder cannot be trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// No model fits.
    #[error(transparent)]
    Model(#[from] SelectError),
    /// Users cannot call the skill.
    #[error(transparent)]
    Skill(#[from] NotUserInvocable),
    /// A file or a program could not be used.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// A task panicked.
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
    /// It cannot be done as things are, or was asked for in the wrong way: a sentence for the user.
    #[error("{0}")]
    Refused(String),
}

impl From<String> for AppError {
    fn from(sentence: String) -> Self {
        Self::Refused(sentence)
    }
}

impl From<&str> for AppError {
    fn from(sentence: &str) -> Self {
        Self::Refused(sentence.to_owned())
    }
}

impl From<Failure> for AppError {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure.message)
    }
}
