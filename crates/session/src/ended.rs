//! How an attempt to drive a conversation ended.

use aye_core::contract::lifecycle::TerminationReason;
use aye_runtime::{AgentRunResult, RuntimeError};

/// The end of an attempt to drive a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its run is done, and queued messages may start.
    Well,
    /// Its run was cancelled, blocked or stopped by a limit, or it failed: queued messages stay.
    Badly,
    /// Its run waits for answers.
    Waits,
    /// Another process drives it.
    Elsewhere,
    /// An unfinished run is before the queued message.
    NotFree,
    /// Nothing was left to do.
    Nothing,
    /// Another process started the queued message, or it was removed.
    NotQueued,
    /// Another process took it over in the meantime.
    Fenced,
    /// It could not start, and a repetition would fail in the same way.
    Unfit,
    /// It could not go on; a repetition may succeed.
    Failed,
    /// The attempt was given up before its run could be asked to stop.
    Dropped,
}

impl Ended {
    /// Returns how an attempt ended.
    pub fn of(result: &Result<AgentRunResult, RuntimeError>) -> Self {
        match result {
            Ok(result) => Self::of_run(&result.termination),
            Err(error) => Self::of_error(error),
        }
    }

    /// Returns how a run ended.
    pub fn of_run(termination: &TerminationReason) -> Self {
        match termination {
            TerminationReason::Suspended => Self::Waits,
            other if other.went_well() => Self::Well,
            _ => Self::Badly,
        }
    }

    /// Returns what an error says about the conversation.
    pub fn of_error(error: &RuntimeError) -> Self {
        match error {
            RuntimeError::ThreadAlreadyRunning { .. } => Self::Elsewhere,
            RuntimeError::NotFree { .. } => Self::NotFree,
            RuntimeError::NothingToResume { .. } => Self::Nothing,
            RuntimeError::NotQueued { .. } => Self::NotQueued,
            RuntimeError::Fenced { .. } => Self::Fenced,
            RuntimeError::AgentNotFound { .. }
            | RuntimeError::ResolveFailed { .. }
            | RuntimeError::NoMessage { .. }
            | RuntimeError::TooLarge { .. }
            | RuntimeError::Damaged { .. } => Self::Unfit,
            RuntimeError::State(_)
            | RuntimeError::Store(_)
            | RuntimeError::Full
            | RuntimeError::Internal(_) => Self::Failed,
        }
    }

    /// Returns the name of an error for programs.
    pub fn code_of(error: &RuntimeError) -> &'static str {
        error.code().as_str()
    }

    /// Returns the process that drives the conversation, in words, if an attempt ended because of it.
    pub fn driver_of(error: &RuntimeError) -> Option<&str> {
        match error {
            RuntimeError::ThreadAlreadyRunning { process, .. } => Some(process),
            _ => None,
        }
    }

    /// Returns whether a run came to its end, or waits.
    pub fn is_run(self) -> bool {
        matches!(self, Self::Well | Self::Badly | Self::Waits)
    }

    /// Returns whether another process has the conversation, or something is before the attempt: nothing was started,
    /// and it is no failure.
    pub fn is_busy(self) -> bool {
        matches!(self, Self::Elsewhere | Self::NotFree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_busy_is_named_so_and_nothing_else_is() {
        let thread_id = || "t".into();
        let errors = [
            RuntimeError::ThreadAlreadyRunning { thread_id: thread_id(), pid: 1, process: "p".into() },
            RuntimeError::NotFree { thread_id: thread_id() },
            RuntimeError::NothingToResume { thread_id: thread_id() },
            RuntimeError::NoMessage { thread_id: thread_id() },
            RuntimeError::Full,
            RuntimeError::Store("broken".into()),
        ];
        let codes = errors.each_ref().map(Ended::code_of);
        assert_eq!(codes, ["busy", "busy", "nothing_to_resume", "no_message", "disk_full", "internal"]);
        for error in &errors {
            assert_eq!(Ended::of_error(error).is_busy(), Ended::code_of(error) == "busy", "{error}");
        }
    }
}
