//! Ends of runs as stop reasons, and errors as those of JSON-RPC.

use agent_client_protocol::v1::schema as acp;
use agent_client_protocol::{Error, ErrorCode};
use serde_json::json;

use aye_core::contract::inference::StopReason;
use aye_core::contract::lifecycle::TerminationReason;
use aye_runtime::{AgentRunResult, RuntimeError};

use super::host::Refusal;

/// The end of a run.
#[derive(Debug)]
pub(crate) struct RunEnd {
    pub(crate) termination: TerminationReason,
    /// Why the model stopped the last time.
    pub(crate) stop_reason: Option<StopReason>,
    /// A short name of the failure.
    pub(crate) code: Option<String>,
}

impl RunEnd {
    pub(crate) fn of(result: &AgentRunResult) -> Self {
        Self {
            termination: result.termination.clone(),
            stop_reason: result.stop_reason,
            code: result.error_code.clone(),
        }
    }

    /// Returns the text to show to the user, if the stop reason does not already say it.
    pub(crate) fn words(&self) -> Option<String> {
        match &self.termination {
            TerminationReason::Stopped(reason) => {
                Some(format!("\n\nStopped: {}", reason.detail.as_deref().unwrap_or(&reason.code)))
            }
            TerminationReason::Blocked(why) => Some(format!("\n\nBlocked: {why}")),
            TerminationReason::NaturalEnd
            | TerminationReason::BehaviorRequested
            | TerminationReason::Cancelled
            | TerminationReason::Suspended
            | TerminationReason::Error(_) => None,
        }
    }

    /// The answer to the prompt.
    pub(crate) fn stop_reason(&self) -> Result<acp::StopReason, Error> {
        Ok(match &self.termination {
            TerminationReason::Error(message) => {
                let error = internal(message.clone());
                return Err(match &self.code {
                    Some(code) => error.data(json!({ "code": code })),
                    None => error,
                });
            }
            TerminationReason::Cancelled => acp::StopReason::Cancelled,
            TerminationReason::Blocked(_) => acp::StopReason::Refusal,
            TerminationReason::Stopped(reason) => match reason.code.as_str() {
                "length" | "token_budget" => acp::StopReason::MaxTokens,
                "stop_on_tool" | "content_match" | "hook" => acp::StopReason::EndTurn,
                _ => acp::StopReason::MaxTurnRequests,
            },
            TerminationReason::NaturalEnd
            | TerminationReason::BehaviorRequested
            | TerminationReason::Suspended => match self.stop_reason {
                Some(StopReason::MaxTokens) => acp::StopReason::MaxTokens,
                Some(reason) if reason.is_withheld() => acp::StopReason::Refusal,
                Some(_) | None => acp::StopReason::EndTurn,
            },
        })
    }
}

pub(crate) fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INTERNAL_ERROR, message)
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, message)
}

pub(crate) fn refusal(refusal: Refusal) -> Error {
    match refusal {
        Refusal::NoModel(why) => Error::new(ErrorCode::AUTH_REQUIRED, why),
        Refusal::Invalid(why) => invalid(why),
        Refusal::Failed(why) => internal(why),
    }
}

pub(crate) fn runtime_error(error: &RuntimeError) -> Error {
    match error {
        RuntimeError::TooLarge { .. } | RuntimeError::NoMessage { .. } => invalid(error.to_string()),
        _ => internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(termination: TerminationReason, stop_reason: Option<StopReason>) -> RunEnd {
        RunEnd { termination, stop_reason, code: Some("network".into()) }
    }

    #[test]
    fn each_ending_has_a_stop_reason() {
        use acp::StopReason::{Cancelled, EndTurn, MaxTokens, MaxTurnRequests, Refusal};
        let stopped = |code: &str| TerminationReason::stopped(code, "enough");
        for (termination, model, expected) in [
            (TerminationReason::NaturalEnd, Some(StopReason::EndTurn), EndTurn),
            (TerminationReason::NaturalEnd, None, EndTurn),
            (TerminationReason::NaturalEnd, Some(StopReason::MaxTokens), MaxTokens),
            (TerminationReason::NaturalEnd, Some(StopReason::ContentFilter), Refusal),
            (TerminationReason::Blocked("a rule".into()), None, Refusal),
            (stopped("length"), None, MaxTokens),
            (stopped("max_rounds"), None, MaxTurnRequests),
            (stopped("timeout"), None, MaxTurnRequests),
            (TerminationReason::Cancelled, None, Cancelled),
        ] {
            let end = end(termination, model);
            assert_eq!(end.stop_reason().expect("no error"), expected, "{end:?}");
        }
    }

    #[test]
    fn a_failed_run_is_an_error_with_its_reason() {
        let error = end(TerminationReason::Error("the provider is down".into()), None).stop_reason();
        let error = error.expect_err("it failed");
        assert_eq!((error.code.value(), error.message.as_str()), (-32603, "the provider is down"));
        assert_eq!(error.data, Some(json!({"code": "network"})));
        let error = refusal(Refusal::NoModel("run `aye login`".into()));
        assert_eq!((error.code.value(), error.message.as_str()), (-32000, "run `aye login`"));
    }
}
