//! Names of errors for programs.

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A name of an error for programs, the same over HTTP, in the JSON of `aye -p` and in events. It is never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// All codes.
            pub const ALL: &'static [ErrorCode] = &[$(Self::$name),*];

            /// Returns the name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

error_codes! {
    /// Another process has the conversation, or an unfinished run is before the message.
    Busy = "busy",
    /// The conversation has no unfinished run.
    NothingToResume = "nothing_to_resume",
    /// The queued message was started elsewhere, or removed.
    NotQueued = "not_queued",
    /// Another process took the conversation over.
    TakenOver = "taken_over",
    /// The agent does not exist, or cannot run.
    UnknownAgent = "unknown_agent",
    /// There is nothing to answer.
    NoMessage = "no_message",
    /// The message does not fit into the model's window.
    TooLarge = "too_large",
    /// Stored rows cannot be read.
    Damaged = "damaged",
    /// The disk is full; nothing was written.
    DiskFull = "disk_full",
    /// The store cannot be written.
    ReadOnly = "read_only",
    /// There is no such conversation, question or job.
    NotFound = "not_found",
    /// There is one already.
    Exists = "exists",
    /// A fault of aye, or of the machine.
    Internal = "internal",
    /// The command was asked for in the wrong way.
    Usage = "usage",
    /// The command could not be carried out, for a reason that only its sentence says.
    Failed = "failed",
    /// A signal ended the command.
    Terminated = "terminated",
    /// No model can be used: a key, a provider or the model itself is missing.
    NoModel = "no_model",
    /// The answer does not match the schema that was asked for.
    JsonSchema = "json_schema",
    /// The model gave an empty answer.
    EmptyAnswer = "empty_answer",
    /// A plugin failed.
    Plugin = "plugin",
    /// The conversation could not be handed to another agent.
    Handoff = "handoff",
    /// A call may have run before aye was interrupted.
    UnknownOutcome = "unknown_outcome",
    /// The provider failed.
    Provider = "provider",
    /// The provider's limit is reached.
    RateLimited = "rate_limited",
    /// The provider is overloaded or down.
    Unavailable = "unavailable",
    /// The provider is not asked again until its limit resets.
    Paused = "paused",
    /// The provider cannot be reached.
    Network = "network",
    /// The provider took too long.
    Timeout = "timeout",
    /// The provider refused the key.
    Unauthorized = "unauthorized",
    /// The provider refused the request.
    InvalidRequest = "invalid_request",
    /// The conversation does not fit into the model's window.
    ContextOverflow = "context_overflow",
    /// It was cancelled.
    Cancelled = "cancelled",
}

impl ErrorCode {
    /// Returns the code of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// Returns whether the same request may succeed later, because it failed at the provider.
    pub fn is_unavailable(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::Unavailable
                | Self::Paused
                | Self::Network
                | Self::Timeout
                | Self::Provider
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_name_of_its_own() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
        }
        assert_eq!(ErrorCode::parse("nothing"), None);
    }
}
