//! Ids. Each is its own type, so that two of them cannot be swapped.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// A fresh one: a UUID v7 as text, so that the order of ids is the order of birth.
            pub fn fresh() -> Self {
                Self(uuid::Uuid::now_v7().to_string())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: Into<String>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

/// An id from outside that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {kind} id {id:?} is invalid; use 1 to {MAX_GIVEN} letters, digits, `-`, `_`, `.` or `:`")]
pub struct InvalidId {
    /// The kind of item that the id was to name.
    pub kind: &'static str,
    /// The start of the id.
    pub id: String,
}

/// Characters of an id that is given from outside.
const MAX_GIVEN: usize = 128;

/// Checks whether an id may be given from outside to a new thread, run or job. Existing ids stay valid.
///
/// # Errors
/// [`InvalidId`] with the id.
pub fn check_given(kind: &'static str, id: &str) -> Result<(), InvalidId> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    if (1..=MAX_GIVEN).contains(&id.len()) && id.bytes().all(is_valid) && !matches!(id, "." | "..") {
        return Ok(());
    }
    Err(InvalidId { kind, id: id.chars().take(MAX_GIVEN).collect() })
}

id!(
    /// Names a conversation; what a user resumes.
    ThreadId
);

impl ThreadId {
    /// Returns the thread of the child that serves a call: always the same for one call of one run, so that a
    /// child that is started twice is one child. The child's id starts with the parent's.
    #[must_use]
    pub fn of_child(&self, run: &RunId, call: &CallId) -> ThreadId {
        let digest = super::digest::sha256_hex(format!("{run}\n{call}"));
        ThreadId(format!("{self}.{}", &digest[..12]))
    }

    /// Whether this can be the thread of a child, by its name.
    pub fn may_be_child(&self) -> bool {
        self.0.contains('.')
    }

    /// Returns whether this is the given thread, or by its name one of the children below that thread.
    pub fn is_at_or_below(&self, above: &ThreadId) -> bool {
        self.0.strip_prefix(&above.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

id!(
    /// Names one run of a thread.
    RunId
);
id!(
    /// Names one tool call of a run: the id the model reads.
    CallId
);
id!(
    /// Names one question that waits for an answer.
    SuspensionId
);
id!(
    /// Names one answer, so that sending it twice counts once.
    DecisionId
);
id!(
    /// Names one message of a thread.
    MessageId
);
id!(
    /// Names one job of a mailbox.
    JobId
);
