//! A tool call as the user sees it.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Moment, Tail, Todo};
use aye_core::contract::child::{ChildRunState, ChildStatus};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::image::ImageRef;
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::progress::ToolCallProgressState;
use aye_core::contract::suspension::{ACTION_UNKNOWN_OUTCOME, SuspendTicket};
use aye_core::contract::tool::ToolResult;

/// Data is set in at most this many steps.
const MAX_INDENT: usize = 8;

/// The state of a call. Each state is drawn differently: a call that was never allowed is not one whose
/// outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolState {
    /// Its arguments are still arriving.
    Receiving,
    /// Asked for by the model; nothing was done yet.
    Proposed,
    /// A question about it is open.
    Waiting,
    /// It is being executed.
    Running,
    Done,
    /// It was tried and went wrong.
    Failed,
    /// A rule forbids it; it did not run.
    Denied,
    /// The user denied the call; it did not run.
    Declined,
    /// The call was stopped, or closed before it started.
    Cancelled,
    /// The question ran out of time; it did not run.
    Expired,
    /// The call was started, and its outcome is unknown.
    Unknown,
}

impl ToolState {
    pub const ALL: [ToolState; 11] = [
        ToolState::Receiving,
        ToolState::Proposed,
        ToolState::Waiting,
        ToolState::Running,
        ToolState::Done,
        ToolState::Failed,
        ToolState::Denied,
        ToolState::Declined,
        ToolState::Cancelled,
        ToolState::Expired,
        ToolState::Unknown,
    ];

    /// The word on the screen.
    pub fn word(self) -> &'static str {
        match self {
            ToolState::Receiving => "arriving",
            ToolState::Proposed => "proposed",
            ToolState::Waiting => "waiting for you",
            ToolState::Running => "running",
            ToolState::Done => "done",
            ToolState::Failed => "failed",
            ToolState::Denied => "blocked",
            ToolState::Declined => "denied by you",
            ToolState::Cancelled => "cancelled",
            ToolState::Expired => "expired",
            ToolState::Unknown => "outcome unknown",
        }
    }

    /// The mark before the tool's name: one column wide everywhere.
    pub fn icon(self) -> &'static str {
        match self {
            ToolState::Receiving => "·",
            ToolState::Proposed => "○",
            ToolState::Waiting => "?",
            ToolState::Running => "●",
            ToolState::Done => "✓",
            ToolState::Failed => "✗",
            ToolState::Denied => "⊘",
            ToolState::Declined => "−",
            ToolState::Cancelled => "∅",
            ToolState::Expired => "◌",
            ToolState::Unknown => "‽",
        }
    }

    /// Returns whether the call is done.
    pub fn is_final(self) -> bool {
        match self {
            ToolState::Receiving | ToolState::Proposed | ToolState::Waiting => false,
            // An unknown call is done only when a result says so; see `ToolEntry::settle`.
            ToolState::Running | ToolState::Unknown => false,
            ToolState::Done | ToolState::Failed | ToolState::Denied | ToolState::Declined => true,
            ToolState::Cancelled | ToolState::Expired => true,
        }
    }
}

/// The progress of a running call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolProgress {
    pub message: Option<String>,
    /// From 0 to 1.
    pub part: Option<f64>,
    /// The completed and the total count.
    pub count: Option<(u64, u64)>,
}

impl ToolProgress {
    /// Returns the progress in a report, or `None` if the report contains none.
    pub(super) fn of(state: &ToolCallProgressState) -> Option<ToolProgress> {
        let count = state.loaded.zip(state.total).filter(|(_, total)| *total > 0);
        let counted = count.map(|(loaded, total)| loaded as f64 / total as f64);
        let part =
            state.progress.or(counted).filter(|part| part.is_finite()).map(|part| part.clamp(0.0, 1.0));
        let progress =
            ToolProgress { message: state.message.clone().filter(|text| !text.is_empty()), part, count };
        (progress != ToolProgress::default()).then_some(progress)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolEntry {
    pub call_id: String,
    pub name: String,
    /// The arguments, `null` until they are complete.
    pub arguments: Value,
    /// Whether the user edited the arguments before approving the call.
    pub is_edited: bool,
    /// The number of bytes of arguments received.
    pub received: usize,
    /// The state of the call.
    pub state: ToolState,
    /// The last lines of its output while it runs.
    pub tail: Tail,
    /// The result, when it is over.
    pub result: Option<ToolResult>,
    /// Pictures that the result came with.
    pub images: Vec<ImageRef>,
    /// The progress, if the call reports any.
    pub progress: Option<ToolProgress>,
    /// The plan before this call, if the call changes the plan.
    pub planned: Vec<Todo>,
    /// The agent that works on it.
    pub child: Option<Box<ChildRunState>>,
    /// When the call started to run.
    pub started: Option<Moment>,
    /// How long the call ran, in milliseconds.
    pub elapsed: Option<u64>,
}

impl ToolEntry {
    /// A call whose arguments are arriving.
    pub fn new(call_id: impl Into<String>, name: impl Into<String>) -> ToolEntry {
        ToolEntry {
            call_id: call_id.into(),
            name: name.into(),
            arguments: Value::Null,
            is_edited: false,
            received: 0,
            state: ToolState::Receiving,
            tail: Tail::default(),
            result: None,
            images: Vec::new(),
            progress: None,
            planned: Vec::new(),
            child: None,
            started: None,
            elapsed: None,
        }
    }

    /// Another agent works on it.
    pub(super) fn serve(&mut self, at: Moment, mut state: ChildRunState) {
        if self.is_over() {
            return;
        }
        self.run(at);
        if state.status == ChildStatus::Waiting {
            self.state = ToolState::Waiting;
        }
        if let Some(known) = self.child.take() {
            // A state read from the store does not include the current activity.
            state.line = state.line.or(known.line);
        }
        self.child = Some(Box::new(state));
    }

    pub(super) fn run(&mut self, at: Moment) {
        if self.result.is_none() && self.state != ToolState::Running {
            self.state = ToolState::Running;
            self.started = Some(at);
        }
    }

    /// Replaces the arguments with those the user edited.
    pub(super) fn edit(&mut self, arguments: &Value) {
        self.arguments = arguments.clone();
        self.is_edited = true;
    }

    /// Returns the comment the user added to the approval.
    pub fn comment(&self) -> Option<&str> {
        self.result.as_ref()?.touched.as_ref()?.comment.as_deref()
    }

    /// A question about it is open.
    pub(super) fn wait(&mut self, ticket: Option<&SuspendTicket>) {
        if ticket.is_some_and(SuspendTicket::is_served) {
            self.state = ToolState::Running;
            return;
        }
        let is_unknown = ticket.is_some_and(|ticket| ticket.suspension.action == ACTION_UNKNOWN_OUTCOME);
        self.state = if is_unknown { ToolState::Unknown } else { ToolState::Waiting };
        self.started = None;
    }

    pub(super) fn settle(&mut self, at: Option<Moment>, result: &ToolResult, outcome: ToolCallOutcome) {
        if outcome == ToolCallOutcome::Suspended {
            self.wait(result.suspension.as_deref());
            return;
        }
        let reported =
            result.details.as_ref().and_then(|details| details.get("duration_ms")).and_then(Value::as_u64);
        let seen = at.zip(self.started).map(|(at, started)| at.since(started));
        self.elapsed = reported.or(seen);
        self.state = final_state(result, outcome);
        // The result contains what is worth keeping; the stream was only for the time until then.
        if !matches!(self.state, ToolState::Unknown | ToolState::Cancelled) || shown_text(result).len() > 400
        {
            self.tail = Tail::default();
        }
        self.progress = None;
        let child = result.details.as_ref().and_then(|details| details.get("child"));
        if let Some(child) = child.and_then(|child| serde_json::from_value(child.clone()).ok()) {
            self.child = Some(Box::new(child));
        } else if let Some(child) = self.child.as_mut().filter(|child| !child.status.is_over()) {
            child.status = ChildStatus::Cancelled;
            (child.tool, child.line) = (None, None);
        }
        if let Some(arguments) = result.touched.as_ref().and_then(|touched| touched.arguments.as_ref()) {
            self.edit(arguments);
        }
        self.images = result.images.iter().filter_map(ContentBlock::as_stored_image).cloned().collect();
        // The images' bytes are not needed here, and may be large.
        self.result = Some(ToolResult { images: Vec::new(), ..result.clone() });
    }

    /// Returns whether the call already shows this question as pending.
    pub(super) fn is_asked(&self, ticket: &SuspendTicket) -> bool {
        let is_unknown = ticket.suspension.action == ACTION_UNKNOWN_OUTCOME;
        self.state == if is_unknown { ToolState::Unknown } else { ToolState::Waiting }
    }

    /// Returns whether the call is final.
    pub fn is_over(&self) -> bool {
        self.state.is_final() || self.result.is_some()
    }

    /// Returns the text of the result for the user.
    pub fn output(&self) -> String {
        self.result.as_ref().map(shown_text).unwrap_or_default()
    }
}

/// The machine-readable word of a result that did not come from the tool itself.
fn code_of(result: &ToolResult) -> Option<&str> {
    result
        .details
        .as_ref()
        .and_then(|details| details.get("code"))
        .or_else(|| result.data.get("code"))
        .and_then(Value::as_str)
}

fn final_state(result: &ToolResult, outcome: ToolCallOutcome) -> ToolState {
    let by_code = match code_of(result) {
        Some("declined" | "change_wanted") => Some(ToolState::Declined),
        Some("denied" | "blocked" | "permission_denied" | "hook_denied" | "hook_failed") => {
            Some(ToolState::Denied)
        }
        Some("expired") => Some(ToolState::Expired),
        Some("unknown") => Some(ToolState::Unknown),
        Some("cancelled" | "interrupted" | "superseded" | "not_run") => Some(ToolState::Cancelled),
        _ => None,
    };
    match outcome {
        ToolCallOutcome::Succeeded if result.is_error() => ToolState::Failed,
        ToolCallOutcome::Succeeded => ToolState::Done,
        ToolCallOutcome::Failed => by_code.unwrap_or(ToolState::Failed),
        ToolCallOutcome::Cancelled => by_code.unwrap_or(ToolState::Cancelled),
        ToolCallOutcome::Suspended => ToolState::Waiting,
    }
}

/// Returns the text of a result for the user: the text meant for the user, else its message, else its data.
fn shown_text(result: &ToolResult) -> String {
    match (result.shown(), &result.message) {
        (Some(shown), _) => shown.to_owned(),
        (None, Some(message)) => message.clone(),
        (None, None) => {
            let mut text = String::new();
            plain_data(answer_of(&result.data), 0, &mut text);
            text.trim_end().to_owned()
        }
    }
}

/// Returns the answer to a question without the member that contains it.
fn answer_of(data: &Value) -> &Value {
    match data.as_object() {
        Some(members) if members.len() == 1 => members.get("answer").or_else(|| members.get("answers")),
        _ => None,
    }
    .unwrap_or(data)
}

/// Data as lines to read: a member or an item each, what is in them further in.
fn plain_data(data: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth.min(MAX_INDENT));
    let simple = |value: &Value| match value {
        Value::Null => Some("none".to_owned()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => items.is_empty().then(|| "none".to_owned()),
        Value::Object(members) => members.is_empty().then(|| "none".to_owned()),
    };
    let mut line = |lead: &str, value: &Value| {
        if let Some(text) = simple(value) {
            let text = text.trim_end().replace('\n', &format!("\n{indent}  "));
            let _ = writeln!(out, "{indent}{lead}{text}");
        } else {
            let _ = writeln!(out, "{indent}{}", lead.trim_end());
            plain_data(value, depth + 1, out);
        }
    };
    match data {
        Value::Null => {}
        Value::Object(members) => members.iter().for_each(|(key, value)| line(&format!("{key}: "), value)),
        Value::Array(items) => items.iter().for_each(|item| line("- ", item)),
        value => line("", value),
    }
}
