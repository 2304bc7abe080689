//! The answers that a command may give, and the meaning of its exit status.

use serde::{Deserialize, Serialize};

use super::config::{HookSpec, phase_name};
use super::foreign;
use super::runner::{HookNotRun, HookOutput};
use aye_core::contract::context_message::ContextTarget;
use aye_core::contract::display::{shortened, visible_line};
use aye_core::state::Phase;

/// Characters of a reason that are kept.
const MAX_REASON: usize = 4000;
/// Characters of a message for the model.
const MAX_CONTENT: usize = 64 * 1024;
/// Maximum messages or tools in one answer.
const MAX_LIST: usize = 64;

/// The answer of a command: the JSON object on its stdout. Nothing at all is an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HookResponse {
    /// The reason to end the run here, as blocked; a current call does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// The reason to deny the call: the call does not run, the model reads an error result with this reason,
    /// and the run continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<String>,
    /// The call does not run and has this result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_result: Option<GivenResult>,
    /// The user is asked before the call runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<HookAsk>,
    /// Messages for the model, in its next request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<Context>,
    /// A message for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Tools that the next request does not offer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_tools: Vec<String>,
    /// The run ends at the end of what it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
}

/// The result that a call has without having run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenResult {
    /// The text that the model reads.
    pub text: String,
    /// Whether the result is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub error: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookAsk {
    /// The question to the user.
    pub question: String,
}

/// A message for the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    pub content: String,
    /// The position of the message.
    #[serde(default = "conversation")]
    pub target: ContextTarget,
    /// In each request from then on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
}

fn conversation() -> ContextTarget {
    ContextTarget::Conversation
}

/// The reason a command has no answer, worded to follow "the hook".
#[derive(Debug, thiserror::Error)]
pub enum HookFailure {
    /// The command did not end on its own.
    #[error("was {0}")]
    Ended(String),
    /// It ended with a status that means neither yes nor no.
    #[error("ended with exit status {status}{}", last_line.as_ref().map(|line| format!(": {line}")).unwrap_or_default())]
    Status {
        status: i32,
        /// The last line of its stderr.
        last_line: Option<String>,
    },
    /// How the command ended is unknown.
    #[error("ended without an exit status")]
    NoStatus,
    /// It said no when the run had ended.
    #[error("denied (exit status 2) a run that is already done: {0}")]
    TooLate(String),
    /// Its answer is longer than what is read.
    #[error("wrote too much to stdout")]
    TooLong,
    /// Its answer is not JSON, or has other members.
    #[error("wrote an invalid answer to stdout: {}", visible_line(&.0.to_string()))]
    Invalid(#[from] serde_json::Error),
    /// Its answer is another JSON value.
    #[error("wrote an invalid answer to stdout: it must be a JSON object such as {{\"deny\": \"why\"}}")]
    NotAnObject,
    /// Its answer wants what cannot be at this phase.
    #[error("answered `{part}`, which has no effect at {}", phase_name(*phase))]
    NoEffect { part: &'static str, phase: Phase },
    /// Its answer has too many parts.
    #[error("answered with more than {MAX_LIST} messages or tools")]
    TooMany,
    /// It did not run.
    #[error("could not be started: {0}")]
    NotRun(#[from] HookNotRun),
    /// The code that runs the command panicked.
    #[error("failed inside aye")]
    Panicked,
}

/// Returns the answer of a command that ended.
///
/// - 0: its stdout, which is empty or the command's answer as JSON, in aye's form or in that of Claude Code.
/// - 2: a denial, with its stderr as the reason. At `before_tool_execute` it is `deny`; at
///   `after_tool_execute`, where the tool already ran, the model reads the reason; at the other phases it is
///   `block`. At `run_end` there is nothing left to deny.
/// - anything else, a signal, the time limit, an answer that cannot be read or does not fit the phase: the
///   command failed.
///
/// # Errors
/// The reason it failed.
pub fn read(phase: Phase, output: &HookOutput) -> Result<HookResponse, HookFailure> {
    if let Some(ended) = &output.ended {
        return Err(HookFailure::Ended(ended.clone()));
    }
    match output.exit_code {
        Some(0) => parse(phase, output),
        Some(2) => refused(phase, output),
        Some(status) => Err(HookFailure::Status { status, last_line: last_line(&output.stderr) }),
        None => Err(HookFailure::NoStatus),
    }
}

impl HookSpec {
    /// Returns the answer of its command, as [`read`] does. Where output may be plain text, as Claude Code reads it, only what
    /// begins as an object is an answer: other text is for the model at the start of a run, and for nobody elsewhere.
    ///
    /// # Errors
    /// The reason it failed.
    pub fn answer_of(&self, output: &HookOutput) -> Result<HookResponse, HookFailure> {
        let text = output.stdout.trim();
        let has_ended = output.ended.is_none() && output.exit_code == Some(0);
        if !(self.plain_output && has_ended) || text.is_empty() || text.starts_with('{') {
            return read(self.phase, output);
        }
        if self.phase != Phase::RunStart {
            return Ok(HookResponse::default());
        }
        let context =
            Context { content: text.to_owned(), target: ContextTarget::Conversation, persistent: false };
        HookResponse { context: vec![context], ..HookResponse::default() }.checked(self.phase)
    }
}

fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(visible_line(line.trim()).chars().take(200).collect())
}

fn refused(phase: Phase, output: &HookOutput) -> Result<HookResponse, HookFailure> {
    let reason = match output.stderr.trim() {
        "" => "no reason given (exit status 2, empty stderr)".to_owned(),
        reason => shortened(reason, MAX_REASON).into_owned(),
    };
    if phase == Phase::RunEnd { Err(HookFailure::TooLate(reason)) } else { Ok(refusal(phase, reason)) }
}

/// Returns the answer that a plain refusal stands for.
pub(super) fn refusal(phase: Phase, reason: String) -> HookResponse {
    match phase {
        Phase::BeforeToolExecute => HookResponse { deny: Some(reason), ..HookResponse::default() },
        Phase::AfterToolExecute => {
            let context = Context { content: reason, target: ContextTarget::Conversation, persistent: false };
            HookResponse { context: vec![context], ..HookResponse::default() }
        }
        Phase::RunStart
        | Phase::StepStart
        | Phase::BeforeInference
        | Phase::AfterInference
        | Phase::StepEnd
        | Phase::RunEnd => HookResponse { block: Some(reason), ..HookResponse::default() },
    }
}

fn parse(phase: Phase, output: &HookOutput) -> Result<HookResponse, HookFailure> {
    if output.is_cut {
        return Err(HookFailure::TooLong);
    }
    let text = output.stdout.trim();
    if text.is_empty() {
        return Ok(HookResponse::default());
    }
    let answer: serde_json::Value = serde_json::from_str(text)?;
    // A list would be read as the members in their order.
    if !answer.is_object() {
        return Err(HookFailure::NotAnObject);
    }
    if foreign::is_foreign(&answer) {
        return foreign::read(phase, answer)?.checked(phase);
    }
    HookResponse::deserialize(answer)?.checked(phase)
}

impl HookResponse {
    /// Returns whether the answer is empty.
    pub fn is_empty(&self) -> bool {
        *self == HookResponse::default()
    }

    /// Refuses members that have no effect at the phase: the user who wrote them believes that they do
    /// something.
    fn checked(mut self, phase: Phase) -> Result<HookResponse, HookFailure> {
        let at_gate = phase == Phase::BeforeToolExecute;
        let at_end = phase == Phase::RunEnd;
        let parts = [
            ("block", self.block.is_some(), !at_end),
            ("deny", self.deny.is_some(), at_gate),
            ("set_result", self.set_result.is_some(), at_gate),
            ("ask", self.ask.is_some(), at_gate),
            ("context", !self.context.is_empty(), !at_end),
            ("exclude_tools", !self.exclude_tools.is_empty(), !at_end),
            ("stop", self.stop.is_some(), !at_end),
        ];
        if let Some((part, _, _)) = parts.iter().find(|(_, is_given, fits)| *is_given && !fits) {
            return Err(HookFailure::NoEffect { part, phase });
        }
        if self.context.len() > MAX_LIST || self.exclude_tools.len() > MAX_LIST {
            return Err(HookFailure::TooMany);
        }
        for reason in
            [&mut self.block, &mut self.deny, &mut self.notice, &mut self.stop].into_iter().flatten()
        {
            *reason = shortened(reason, MAX_REASON).into_owned();
        }
        if let Some(ask) = &mut self.ask {
            ask.question = shortened(&ask.question, MAX_REASON).into_owned();
        }
        for message in &mut self.context {
            message.content = shortened(&message.content, MAX_CONTENT).into_owned();
        }
        if let Some(result) = &mut self.set_result {
            result.text = shortened(&result.text, MAX_CONTENT).into_owned();
        }
        Ok(self)
    }

    /// Returns the answer on one line, for the record.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        let mut add_part = |word: &str, text: &str| parts.push(format!("{word}: {text}"));
        if let Some(reason) = &self.block {
            add_part("block", reason);
        }
        if let Some(reason) = &self.deny {
            add_part("deny", reason);
        }
        if let Some(ask) = &self.ask {
            add_part("ask", &ask.question);
        }
        if let Some(result) = &self.set_result {
            add_part(if result.error { "error result" } else { "result" }, &result.text);
        }
        if let Some(reason) = &self.stop {
            add_part("stop", reason);
        }
        for message in &self.context {
            add_part("context", &message.content);
        }
        if !self.exclude_tools.is_empty() {
            add_part("exclude", &self.exclude_tools.join(", "));
        }
        if let Some(text) = &self.notice {
            add_part("notice", text);
        }
        if parts.is_empty() { "nothing".to_owned() } else { shortened(&parts.join("; "), 300).into_owned() }
    }
}
