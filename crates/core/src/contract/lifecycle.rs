//! The states of runs and calls, and why a run ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The coarse state of a run. A projection of the run machine, never kept beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Work is in progress, or would be if a driver were active.
    #[default]
    Running,
    /// Nothing is in flight and at least one question is open.
    Waiting,
    /// Over.
    Done,
}

/// The state of one tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallStatus {
    /// Asked for, not yet gated.
    #[default]
    New,
    Running,
    /// Waiting for a decision.
    Suspended,
    /// Decided, not yet carried out.
    Resuming,
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Declined, cancelled or superseded.
    Cancelled,
}

impl ToolCallStatus {
    /// Returns whether the call is finished.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Returns whether the transition is legal. Staying in the same state is not a transition.
    pub fn can_become(self, next: Self) -> bool {
        match self {
            Self::New => next != Self::New,
            Self::Running => {
                matches!(next, Self::Suspended | Self::Succeeded | Self::Failed | Self::Cancelled)
            }
            Self::Suspended => matches!(next, Self::Resuming | Self::Cancelled),
            Self::Resuming => matches!(
                next,
                Self::Running | Self::Suspended | Self::Succeeded | Self::Failed | Self::Cancelled
            ),
            Self::Succeeded | Self::Failed | Self::Cancelled => false,
        }
    }
}

/// The end or the pause of a call, as reported by `ToolCallDone`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallOutcome {
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Waits for a decision.
    Suspended,
    /// Declined, cancelled or superseded.
    Cancelled,
}

/// A condition that ends a run, as agents and settings write it. A number of 0 switches it off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum StopConditionSpec {
    /// A number of inferences; the calls of the last one are settled first.
    MaxRounds {
        /// Inferences.
        rounds: usize,
    },
    /// More active time than this; waiting for a user does not count.
    Timeout {
        /// Seconds.
        seconds: u64,
    },
    /// More tokens, in and out, than this.
    TokenBudget {
        /// Tokens of the whole run.
        max_total: usize,
    },
    /// A number of consecutive answers of which every call failed to run or was refused.
    ConsecutiveErrors {
        /// Answers.
        max: usize,
    },
    /// The same call, or the same two or three calls in turn, came back with the same results this often in a row; half-way
    /// the model is reminded. 1 switches it off too.
    RepeatedCalls {
        /// Times.
        max: usize,
    },
    /// A call of this tool succeeded.
    StopOnTool {
        /// The tool's exact name.
        tool_name: String,
    },
    /// The model's text of one answer matches.
    ContentMatch {
        /// A regular expression, not anchored.
        pattern: String,
    },
    /// The same call, or the same two or three calls in turn, repeated this often in a row. 1 switches it off too.
    LoopDetection {
        /// Repetitions.
        window: usize,
    },
}

/// The stop condition that fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StoppedReason {
    /// Machine-readable: `max_rounds`, `token_budget`, `timeout`, `consecutive_errors`, ...
    pub code: String,
    /// The text for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl StoppedReason {
    /// Returns whether the user set this end as a goal, which the run reached.
    pub fn is_goal(&self) -> bool {
        ["stop_on_tool", "content_match"].contains(&self.code.as_str())
    }
}

/// Why a run ended, or why it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum TerminationReason {
    /// The model asked for nothing more.
    NaturalEnd,
    /// A plugin ended it.
    BehaviorRequested,
    /// A stop condition fired.
    Stopped(StoppedReason),
    /// The user, or a signal.
    Cancelled,
    /// A plugin blocked a call.
    Blocked(String),
    /// Not over: questions are open.
    Suspended,
    /// Something failed.
    Error(String),
}

impl TerminationReason {
    /// Returns whether the run ended normally, so that queued messages may start although no user has seen the result.
    pub fn went_well(&self) -> bool {
        matches!(self, Self::NaturalEnd | Self::BehaviorRequested)
    }

    /// The status that goes with it.
    pub fn to_run_status(&self) -> RunStatus {
        match self {
            Self::Suspended => RunStatus::Waiting,
            Self::NaturalEnd
            | Self::BehaviorRequested
            | Self::Stopped(_)
            | Self::Cancelled
            | Self::Blocked(_)
            | Self::Error(_) => RunStatus::Done,
        }
    }

    /// A stop condition's reason.
    pub fn stopped(code: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Stopped(StoppedReason { code: code.into(), detail: Some(detail.into()) })
    }
}
