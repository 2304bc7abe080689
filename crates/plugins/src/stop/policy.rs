use std::time::Duration;

use regex::Regex;

use super::{SettledCall, StopConfigError};
use aye_core::contract::amount::counted;

/// The point at which a policy is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopPoint {
    /// The answer has arrived; if the run ends here, its calls are answered as not run.
    AfterInference,
    /// The calls of the step are settled, and another inference would follow.
    #[default]
    StepEnd,
}

/// The decision of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopDecision {
    Continue,
    Stop {
        /// Machine-readable.
        code: String,
        /// The reason shown to the user, truncated to 200 characters.
        detail: String,
    },
}

impl StopDecision {
    fn stop_if(holds: bool, code: &str, detail: impl FnOnce() -> String) -> Self {
        if holds { Self::Stop { code: code.into(), detail: detail() } } else { Self::Continue }
    }
}

/// The figures of a run that policies see. All counts cover the whole run, across waits and restarts; after
/// the user extended a limit, all but the time count from there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StopPolicyStats {
    /// Inferences completed.
    pub step_count: u32,
    /// Prompt tokens.
    pub total_input_tokens: u64,
    /// Completion tokens.
    pub total_output_tokens: u64,
    /// Both; the provider's own sum where it gave one.
    pub total_tokens: u64,
    /// Active time, in milliseconds.
    pub elapsed_ms: u64,
    /// Answers in a row, up to now, of which every call failed to run or was refused. A failure that a tool itself
    /// reports, such as a command's exit status, is a result.
    pub consecutive_errors: u32,
    /// How often in a row the newest calls, one or up to three in turn, came back with the same results; 1 if they did
    /// not before.
    pub repeats: u32,
    /// The same before this step.
    pub repeats_before: u32,
    /// The tools that the latest answer asked for.
    pub last_tool_names: Vec<String>,
    /// The text of the latest answer.
    pub last_response_text: String,
    /// The tools of this step whose calls succeeded, in the order in which they were settled.
    pub succeeded_tools: Vec<String>,
    /// The latest settled calls, newest last: at least as many as the policies need, if there were that many.
    pub settled: Vec<SettledCall>,
}

/// A condition that ends a run. Pure: the decision depends on the figures alone.
pub trait StopPolicy: Send + Sync + 'static {
    /// A name for logs.
    fn id(&self) -> &str;

    /// Returns the point at which the policy is evaluated.
    fn point(&self) -> StopPoint {
        StopPoint::StepEnd
    }

    /// Returns the number of settled calls that the policy needs. `None` means that the policy does not read
    /// calls at all: if no policy does, none are counted.
    fn history(&self) -> Option<usize> {
        Some(0)
    }

    /// Returns how long a run may be active; the run ends then, whatever is in flight.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    /// Decides whether the run should end.
    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision;

    /// Returns what the model should read before its next answer, for a policy that has not ended the run.
    fn reminder(&self, _stats: &StopPolicyStats) -> Option<String> {
        None
    }
}

/// Ends a run after a number of inferences.
#[derive(Clone, Copy, Debug)]
pub struct MaxRoundsPolicy {
    rounds: usize,
}

impl MaxRoundsPolicy {
    /// Creates a policy with this limit of inferences; 0 means no limit.
    pub fn new(rounds: usize) -> Self {
        Self { rounds }
    }
}

impl StopPolicy for MaxRoundsPolicy {
    fn id(&self) -> &'static str {
        "max_rounds"
    }

    fn history(&self) -> Option<usize> {
        None
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        let holds = self.rounds > 0 && stats.step_count as usize >= self.rounds;
        StopDecision::stop_if(holds, self.id(), || {
            format!("the limit of {} is reached", counted(self.rounds, "inference"))
        })
    }
}

/// Ends a run that used more tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenBudgetPolicy {
    max_total: u64,
}

impl TokenBudgetPolicy {
    /// Creates a policy with this limit of tokens, input and output together; 0 means no limit.
    pub fn new(max_total: u64) -> Self {
        Self { max_total }
    }
}

impl StopPolicy for TokenBudgetPolicy {
    fn id(&self) -> &'static str {
        "token_budget"
    }

    fn point(&self) -> StopPoint {
        StopPoint::AfterInference
    }

    fn history(&self) -> Option<usize> {
        None
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        let holds = self.max_total > 0 && stats.total_tokens > self.max_total;
        StopDecision::stop_if(holds, self.id(), || {
            format!("{} tokens used; the limit is {}", stats.total_tokens, self.max_total)
        })
    }
}

/// Ends a run that was active for longer than a limit.
#[derive(Clone, Copy, Debug)]
pub struct TimeoutPolicy {
    max_ms: u64,
}

impl TimeoutPolicy {
    /// Creates a policy with this limit of active time, in milliseconds; 0 means no limit.
    pub fn new(max_ms: u64) -> Self {
        Self { max_ms }
    }
}

impl StopPolicy for TimeoutPolicy {
    fn id(&self) -> &'static str {
        "timeout"
    }

    fn point(&self) -> StopPoint {
        StopPoint::AfterInference
    }

    fn history(&self) -> Option<usize> {
        None
    }

    fn time_limit(&self) -> Option<Duration> {
        (self.max_ms > 0).then(|| Duration::from_millis(self.max_ms))
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        let holds = self.max_ms > 0 && stats.elapsed_ms > self.max_ms;
        let seconds = |ms: u64| ms as f64 / 1000.0;
        StopDecision::stop_if(holds, self.id(), || {
            format!("{:.1} s spent; the limit is {} s", seconds(stats.elapsed_ms), seconds(self.max_ms))
        })
    }
}

/// Ends a run whose calls keep failing to run; half-way the model is reminded.
#[derive(Clone, Copy, Debug)]
pub struct ConsecutiveErrorsPolicy {
    max: usize,
}

impl ConsecutiveErrorsPolicy {
    /// The code of its stop.
    pub const CODE: &str = "consecutive_errors";

    /// Creates a policy with this limit of consecutive answers whose calls all came to nothing; 0 means no limit.
    pub fn new(max: usize) -> Self {
        Self { max }
    }
}

impl StopPolicy for ConsecutiveErrorsPolicy {
    fn id(&self) -> &'static str {
        Self::CODE
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        let holds = self.max > 0 && stats.consecutive_errors as usize >= self.max;
        StopDecision::stop_if(holds, self.id(), || {
            format!(
                "every call of {} in a row failed to run; the limit is {}",
                counted(stats.consecutive_errors, "answer"),
                self.max
            )
        })
    }

    fn reminder(&self, stats: &StopPolicyStats) -> Option<String> {
        let is_half_way = self.max > 1 && stats.consecutive_errors as usize == self.max / 2;
        is_half_way.then(|| {
            format!(
                "Every tool call of your last {} answers failed to run or was refused; after {} such answers the \
                 run stops. Read the errors, compare the calls with the names and parameters of the tools you \
                 have, and do it another way. If you cannot go on, tell the user what is missing.",
                stats.consecutive_errors, self.max
            )
        })
    }
}

/// Ends a run whose calls keep coming back with the same results; half-way the model is reminded.
#[derive(Clone, Copy, Debug)]
pub struct RepeatedCallsPolicy {
    max: usize,
}

impl RepeatedCallsPolicy {
    /// The code of its stop.
    pub const CODE: &str = "repeated_calls";

    /// Creates a policy with this limit of the same calls with the same results in a row; 0 means no limit.
    pub fn new(max: usize) -> Self {
        Self { max }
    }

    fn tools(stats: &StopPolicyStats) -> String {
        let mut tools = stats.last_tool_names.clone();
        tools.dedup();
        tools.join(", ")
    }
}

impl StopPolicy for RepeatedCallsPolicy {
    fn id(&self) -> &'static str {
        Self::CODE
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        let holds = self.max > 1 && stats.repeats as usize >= self.max;
        StopDecision::stop_if(holds, self.id(), || {
            format!(
                "the same calls came back with the same results {} times in a row ({}); the limit is {}",
                stats.repeats,
                Self::tools(stats),
                self.max
            )
        })
    }

    fn reminder(&self, stats: &StopPolicyStats) -> Option<String> {
        let half = self.max.div_ceil(2).max(2);
        let is_half_way =
            self.max > half && stats.repeats as usize >= half && (stats.repeats_before as usize) < half;
        is_half_way.then(|| {
            format!(
                "You made the same calls {} times in a row ({}), and each time they came back with the same results; \
                 after {} times the run stops. Another try will not change that: use what you have, or do it another \
                 way. If you cannot go on, tell the user what is missing.",
                stats.repeats,
                Self::tools(stats),
                self.max
            )
        })
    }
}

/// Ends a run after a step in which a call of one tool succeeded.
#[derive(Clone, Debug)]
pub struct StopOnToolPolicy {
    tool_name: String,
}

impl StopOnToolPolicy {
    /// The tool's exact name.
    ///
    /// # Errors
    /// [`StopConfigError::EmptyToolName`].
    pub fn new(tool_name: &str) -> Result<Self, StopConfigError> {
        if tool_name.trim().is_empty() {
            return Err(StopConfigError::EmptyToolName);
        }
        Ok(Self { tool_name: tool_name.to_owned() })
    }
}

impl StopPolicy for StopOnToolPolicy {
    fn id(&self) -> &'static str {
        "stop_on_tool"
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        StopDecision::stop_if(stats.succeeded_tools.contains(&self.tool_name), self.id(), || {
            format!("{} was called", self.tool_name)
        })
    }
}

/// Ends a run when the model's text matches.
#[derive(Clone, Debug)]
pub struct ContentMatchPolicy {
    regex: Regex,
}

impl ContentMatchPolicy {
    /// A regular expression, not anchored.
    ///
    /// # Errors
    /// [`StopConfigError::EmptyPattern`], [`StopConfigError::BadPattern`].
    pub fn new(pattern: &str) -> Result<Self, StopConfigError> {
        if pattern.is_empty() {
            return Err(StopConfigError::EmptyPattern);
        }
        let regex = Regex::new(pattern).map_err(|e| StopConfigError::BadPattern {
            pattern: pattern.to_owned(),
            // The last line says what; those before it draw the place with carets.
            message: e
                .to_string()
                .lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned(),
        })?;
        Ok(Self { regex })
    }
}

impl StopPolicy for ContentMatchPolicy {
    fn id(&self) -> &'static str {
        "content_match"
    }

    fn point(&self) -> StopPoint {
        StopPoint::AfterInference
    }

    fn history(&self) -> Option<usize> {
        None
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        match self.regex.find(&stats.last_response_text) {
            Some(found) => StopDecision::Stop {
                code: self.id().into(),
                detail: format!("the answer matches `{}`: {}", self.regex, found.as_str()),
            },
            None => StopDecision::Continue,
        }
    }
}

/// Ends a run that goes in circles: the same call, or the same two or three in turn, `window` times in a row.
#[derive(Clone, Copy, Debug)]
pub struct LoopDetectionPolicy {
    window: usize,
}

impl LoopDetectionPolicy {
    /// The longest loop that is detected, in calls.
    pub const LONGEST: usize = 3;

    /// Creates a policy with this number of repetitions; 0 and 1 disable the policy.
    pub fn new(window: usize) -> Self {
        Self { window }
    }

    /// The length of the circle that the newest calls go in: the shortest one.
    fn circle(self, settled: &[SettledCall]) -> Option<usize> {
        (1..=Self::LONGEST).find(|length| {
            let Some(tail) = self.window.checked_mul(*length).and_then(|n| settled.len().checked_sub(n))
            else {
                return false;
            };
            let tail = &settled[tail..];
            tail.iter().zip(&tail[*length..]).all(|(call, later)| call.fingerprint == later.fingerprint)
        })
    }
}

impl StopPolicy for LoopDetectionPolicy {
    fn id(&self) -> &'static str {
        "loop_detection"
    }

    fn history(&self) -> Option<usize> {
        Some(if self.window > 1 { self.window.saturating_mul(Self::LONGEST) } else { 0 })
    }

    fn evaluate(&self, stats: &StopPolicyStats) -> StopDecision {
        if self.window < 2 {
            return StopDecision::Continue;
        }
        match self.circle(&stats.settled) {
            None => StopDecision::Continue,
            Some(length) => {
                let tools: Vec<_> = stats.settled[stats.settled.len() - length..]
                    .iter()
                    .map(|settled| settled.tool.as_str())
                    .collect();
                let what = if length == 1 { "the same call" } else { "the same calls in turn" };
                let detail = format!("{what}, {} times in a row: {}", self.window, tools.join(", "));
                StopDecision::Stop { code: self.id().into(), detail }
            }
        }
    }
}
