//! Why the program did not do what a front end or a command asked for, in words and as an exit status.

use crate::config::{SelectError, TrustError};
use crate::contract::error_code::ErrorCode;
use crate::contract::storage::StoreError;
use crate::headless::exit;
use crate::mcp::McpServerError;
use crate::picture::PictureError;
use crate::plugins::skills::NotUserInvocable;
use crate::program::keyring::KeyringError;
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
    /// The name for programs.
    code: ErrorCode,
    /// What the user can do about it, in the order of the sentence.
    hints: Vec<String>,
    source: Option<AnyError>,
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl Failure {
    /// It was tried, and went wrong.
    pub(crate) fn failed(error: impl Into<AnyError>) -> Self {
        Self::new(error.into(), exit::FAILED, ErrorCode::Failed)
    }

    /// It was asked for in the wrong way.
    pub(crate) fn usage(error: impl Into<AnyError>) -> Self {
        Self::new(error.into(), exit::USAGE, ErrorCode::Usage)
    }

    /// An error's sentence names the remedies after what happened, each after a semicolon.
    fn new(error: AnyError, exit: u8, otherwise: ErrorCode) -> Self {
        let code = code_of(&*error).unwrap_or(otherwise);
        let message = error.to_string();
        let hints = hints_of(&message);
        Self { message, exit, code, hints, source: Some(error) }
    }

    /// It went wrong, and why is on the screen already.
    pub(crate) fn reported() -> Self {
        Self::silent(exit::FAILED, ErrorCode::Failed)
    }

    /// A signal ended it.
    pub(crate) fn terminated() -> Self {
        Self::silent(exit::TERMINATED, ErrorCode::Terminated)
    }

    fn silent(exit: u8, code: ErrorCode) -> Self {
        Self { message: String::new(), exit, code, hints: Vec::new(), source: None }
    }

    /// Gives the same failure another sentence.
    pub(crate) fn with_message(self, message: String) -> Self {
        Self { hints: hints_of(&message), message, ..self }
    }

    /// Returns its name for programs.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// Returns what the user can do about it.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().and_then(std::error::Error::source)
    }
}

fn hints_of(message: &str) -> Vec<String> {
    message.split("; ").skip(1).map(str::to_owned).collect()
}

/// Returns the name of the first part that has one, from the outside in.
fn code_of(error: &(dyn std::error::Error + 'static)) -> Option<ErrorCode> {
    let mut parts = std::iter::successors(Some(error), |error| error.source());
    parts.find_map(|error| {
        if let Some(error) = error.downcast_ref::<AppError>() {
            return error.code();
        }
        let runtime = error.downcast_ref::<RuntimeError>().map(RuntimeError::code);
        let store = || error.downcast_ref::<StoreError>().map(StoreError::code);
        runtime.or_else(store).or_else(|| error.is::<SelectError>().then_some(ErrorCode::NoModel))
    })
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
    /// An image cannot be shown.
    #[error(transparent)]
    Picture(#[from] PictureError),
    /// The system keyring did not do it.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// A file or a program could not be used.
    #[error(transparent)]
    File(#[from] std::io::Error),
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
    /// It cannot be done as things are, or was asked for in the wrong way: a sentence for the user.
    #[error("{0}")]
    Refused(String),
}

impl AppError {
    /// A transparent error is no source of itself.
    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Store(error) => Some(error.code()),
            Self::Runtime(error) => Some(error.code()),
            Self::Model(_) => Some(ErrorCode::NoModel),
            Self::Snapshot(_)
            | Self::Server(_)
            | Self::Git(_)
            | Self::NotConfined(_)
            | Self::Trust(_)
            | Self::Skill(_)
            | Self::Picture(_)
            | Self::Keyring(_)
            | Self::File(_)
            | Self::Panicked(_)
            | Self::Refused(_) => None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_code_of_the_part_that_failed() {
        let unknown = || StoreError::NoThread("t".into());
        assert_eq!(Failure::failed(unknown()).code(), ErrorCode::NotFound);
        assert_eq!(Failure::usage(AppError::from(unknown())).code(), ErrorCode::NotFound);
        assert_eq!(Failure::failed(AppError::Runtime(RuntimeError::Full)).code(), ErrorCode::DiskFull);
        assert_eq!(Failure::failed("no reason").code(), ErrorCode::Failed);
        let usage = Failure::usage(String::from("wrong"));
        assert_eq!((usage.code(), usage.exit, usage.message.as_str()), (ErrorCode::Usage, 2, "wrong"));
        let again = usage.with_message("wrong again".to_owned());
        assert_eq!((again.code(), again.exit), (ErrorCode::Usage, 2));
    }

    #[test]
    fn a_failure_keeps_its_remedies_and_its_cause() {
        let failure = Failure::failed("no model is set; run `aye login`; or name one with --model");
        assert_eq!(failure.hints(), ["run `aye login`", "or name one with --model"]);
        assert!(std::error::Error::source(&failure).is_none());
        let unreadable = || std::io::Error::other("disk");
        let failure = Failure::failed(StoreError::Bell(unreadable()));
        assert_eq!(std::error::Error::source(&failure).map(ToString::to_string), Some("disk".to_owned()));
        assert!(failure.with_message("it failed; try again".to_owned()).hints() == ["try again"]);
        assert!(Failure::reported().hints().is_empty());
    }
}
