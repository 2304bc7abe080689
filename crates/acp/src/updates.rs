//! The events of runs, and stored messages, as updates of a session. No I/O: what comes in is an event, what goes out is
//! a list of updates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_client_protocol::v1::schema as acp;
use serde_json::Value;

use acp::{SessionUpdate, ToolCallStatus, ToolKind};
use aye_core::contract::activity::KnownActivity;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::display::{call_summary, call_text, visible_line};
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::RunId;
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::message::{Message, MessagePart, Role, ToolCall};
use aye_core::contract::question::Question;
use aye_core::contract::record::SuspensionRecord;
use aye_core::contract::tool::{FilePreview, ToolResult};

/// Bytes of a result or of output that a client gets; a model may have read more.
const MAX_TEXT: usize = 32 << 10;
/// Output of a running command is sent no more often: each update repeats what came before.
const OUTPUT_PAUSE: Duration = Duration::from_millis(200);

/// Makes updates of events, one encoder for each session.
pub(crate) struct UpdateEncoder {
    /// The folder that paths of calls are relative to.
    cwd: PathBuf,
    run: String,
    message: Option<String>,
    calls: BTreeMap<String, CallProgress>,
    /// Messages whose text was sent, by id.
    sent: BTreeSet<String>,
    /// Whether the client shows notices beside messages.
    has_notices: bool,
}

/// A call that was announced.
#[derive(Default)]
struct CallProgress {
    name: String,
    arguments: Value,
    output: String,
    last_output: Option<Instant>,
    is_settled: bool,
}

impl UpdateEncoder {
    pub(crate) fn new(cwd: PathBuf) -> Self {
        Self {
            cwd,
            run: String::new(),
            message: None,
            calls: BTreeMap::new(),
            sent: BTreeSet::new(),
            has_notices: false,
        }
    }

    /// Sends notices from now on.
    pub(crate) fn with_notices(mut self, has_notices: bool) -> Self {
        self.has_notices = has_notices;
        self
    }

    /// Notes a message that the client shows already.
    pub(crate) fn knows(&mut self, message: &Message) {
        self.sent.insert(message.id.to_string());
    }

    /// A notice for the user; for a client that shows none, a message.
    pub(crate) fn notice(&self, text: &str) -> SessionUpdate {
        let text = visible_line(text).into_owned();
        if self.has_notices {
            return SessionUpdate::Notice(acp::Notice::new(acp::NoticeSeverity::Warning, text));
        }
        SessionUpdate::AgentMessageChunk(text_chunk(&format!("Note: {text}\n\n")))
    }

    /// The updates that an event makes.
    pub(crate) fn event(&mut self, event: &AgentEvent, now: Instant) -> Vec<SessionUpdate> {
        match event {
            AgentEvent::RunStart { run_id, .. } => {
                self.run.clone_from(run_id);
                Vec::new()
            }
            AgentEvent::StepStart { message_id } => {
                self.sent.insert(message_id.clone());
                self.message = Some(message_id.clone());
                Vec::new()
            }
            AgentEvent::TextDelta { delta } => vec![SessionUpdate::AgentMessageChunk(self.chunk(delta))],
            AgentEvent::ReasoningDelta { delta } => vec![SessionUpdate::AgentThoughtChunk(self.chunk(delta))],
            AgentEvent::ToolCallStart { id, name } => {
                let id = call_id(&self.run, id);
                let call = acp::ToolCall::new(id.clone(), visible_line(name).into_owned())
                    .kind(kind_of(name))
                    .status(ToolCallStatus::Pending);
                self.calls.insert(id, CallProgress { name: name.clone(), ..CallProgress::default() });
                vec![SessionUpdate::ToolCall(call)]
            }
            AgentEvent::ToolCallReady { id, name, arguments } => {
                vec![self.ready(&call_id(&self.run, id), name, arguments)]
            }
            AgentEvent::ToolCallStreamDelta { id, delta, .. } => {
                self.output(&call_id(&self.run, id), delta, now).into_iter().collect()
            }
            AgentEvent::ToolCallResumed { target_id, .. } => {
                let fields = acp::ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
                let id = call_id(&self.run, target_id);
                vec![SessionUpdate::ToolCallUpdate(acp::ToolCallUpdate::new(id, fields))]
            }
            AgentEvent::ToolCallDone { id, result, outcome, .. } => {
                self.done(&call_id(&self.run, id), result, *outcome)
            }
            AgentEvent::ActivitySnapshot { activity_type, content, .. } => {
                self.activity(activity_type, content)
            }
            AgentEvent::RunFinish { .. }
            | AgentEvent::ReasoningEncryptedValue { .. }
            | AgentEvent::ToolCallDelta { .. }
            | AgentEvent::MessagesSnapshot { .. }
            | AgentEvent::ActivityDelta { .. }
            | AgentEvent::StepEnd
            | AgentEvent::InferenceComplete { .. }
            | AgentEvent::StateSnapshot { .. }
            | AgentEvent::StateDelta { .. }
            | AgentEvent::Error { .. } => Vec::new(),
        }
    }

    /// The updates of a stored message that was not sent before: of a conversation that is loaded, or of what another
    /// process wrote.
    pub(crate) fn stored(&mut self, run: &RunId, message: &Message) -> Vec<SessionUpdate> {
        if !message.is_for_all() {
            return Vec::new();
        }
        match message.role {
            Role::System => Vec::new(),
            Role::User => {
                if !self.sent.insert(message.id.to_string()) {
                    return Vec::new();
                }
                let text = message.shown().map_or_else(|| message.written(), str::to_owned);
                let id = acp::MessageId::new(message.id.as_str());
                vec![SessionUpdate::UserMessageChunk(text_chunk(&text).message_id(id))]
            }
            Role::Assistant => self.stored_answer(run, message),
            Role::Tool => {
                let Some(id) = &message.tool_call_id else { return Vec::new() };
                let id = call_id(run.as_str(), id);
                if self.calls.get(&id).is_none_or(|call| call.is_settled) {
                    return Vec::new();
                }
                let about = |key: &str| message.metadata.as_ref()?.get(key).cloned();
                let result = about("tool_result").and_then(|result| serde_json::from_value(result).ok());
                let result: ToolResult = result.unwrap_or_else(|| ToolResult::text("", message.text()));
                let outcome = about("outcome").and_then(|outcome| serde_json::from_value(outcome).ok());
                self.done(&id, &result, outcome.unwrap_or(ToolCallOutcome::Succeeded))
            }
        }
    }

    fn stored_answer(&mut self, run: &RunId, message: &Message) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        let is_new = self.sent.insert(message.id.to_string());
        if is_new {
            self.message = Some(message.id.to_string());
        }
        for part in message.parts() {
            match part {
                MessagePart::Block(ContentBlock::Text { text }) if is_new => {
                    updates.push(SessionUpdate::AgentMessageChunk(self.chunk(text)));
                }
                MessagePart::Block(ContentBlock::Thinking { thinking, .. })
                    if is_new && !thinking.is_empty() =>
                {
                    updates.push(SessionUpdate::AgentThoughtChunk(self.chunk(thinking)));
                }
                MessagePart::Block(_) => {}
                MessagePart::Call(ToolCall { id, name, arguments, .. }) => {
                    let id = call_id(run.as_str(), id);
                    if !self.calls.contains_key(&id) {
                        updates.push(self.ready(&id, name, arguments));
                    }
                }
            }
        }
        updates
    }

    /// The call of a question, for the request that asks it.
    pub(crate) fn asked(&self, asked: &SuspensionRecord, how: Option<&str>) -> acp::ToolCallUpdate {
        let ticket = &asked.ticket;
        let (name, arguments) = (&ticket.pending.name, &ticket.pending.arguments);
        let question = Question::of(&ticket.suspension);
        let mut text = visible_line(&ticket.suspension.why()).into_owned();
        if let Some(how) = how {
            text.push('\n');
            text.push_str(how);
        }
        for words in &question.stale.moved {
            text.push_str("\nAsked again: ");
            text.push_str(&visible_line(words));
        }
        let diffs = previewed(question.files);
        if diffs.is_empty() {
            text.push_str("\n\n");
            text.push_str(&fenced(&call_text(arguments)));
        }
        let fields = acp::ToolCallUpdateFields::new()
            .title(title_of(name, arguments))
            .kind(kind_of(name))
            .status(ToolCallStatus::Pending)
            .locations(locations(arguments, &self.cwd))
            .raw_input(arguments.clone())
            .content(contents(&text, diffs));
        acp::ToolCallUpdate::new(call_id(asked.run_id.as_str(), asked.call_id.as_str()), fields)
    }

    fn chunk(&self, text: &str) -> acp::ContentChunk {
        let chunk = text_chunk(text);
        match &self.message {
            Some(id) => chunk.message_id(acp::MessageId::new(id.as_str())),
            None => chunk,
        }
    }

    /// The whole call: announced before, or not.
    fn ready(&mut self, id: &str, name: &str, arguments: &Value) -> SessionUpdate {
        let progress =
            CallProgress { name: name.to_owned(), arguments: arguments.clone(), ..CallProgress::default() };
        let is_known = self.calls.insert(id.to_owned(), progress).is_some();
        let (title, kind, locations) =
            (title_of(name, arguments), kind_of(name), locations(arguments, &self.cwd));
        let diffs = diffs_of(name, arguments, &self.cwd);
        if is_known {
            let mut fields = acp::ToolCallUpdateFields::new()
                .title(title)
                .kind(kind)
                .status(ToolCallStatus::InProgress)
                .locations(locations)
                .raw_input(arguments.clone());
            if !diffs.is_empty() {
                fields = fields.content(diffs);
            }
            return SessionUpdate::ToolCallUpdate(acp::ToolCallUpdate::new(id.to_owned(), fields));
        }
        let call = acp::ToolCall::new(id.to_owned(), title)
            .kind(kind)
            .status(ToolCallStatus::InProgress)
            .locations(locations)
            .raw_input(arguments.clone())
            .content(diffs);
        SessionUpdate::ToolCall(call)
    }

    fn output(&mut self, id: &str, delta: &str, now: Instant) -> Option<SessionUpdate> {
        let call = self.calls.get_mut(id)?;
        call.output.push_str(delta);
        let from = tail(&call.output, MAX_TEXT);
        call.output.drain(..from);
        if call.last_output.is_some_and(|last| now.duration_since(last) < OUTPUT_PAUSE) {
            return None;
        }
        call.last_output = Some(now);
        let fields = acp::ToolCallUpdateFields::new()
            .status(ToolCallStatus::InProgress)
            .content(contents(&fenced(&call.output), Vec::new()));
        Some(SessionUpdate::ToolCallUpdate(acp::ToolCallUpdate::new(id.to_owned(), fields)))
    }

    fn done(&mut self, id: &str, result: &ToolResult, outcome: ToolCallOutcome) -> Vec<SessionUpdate> {
        let status = match outcome {
            // The question follows.
            ToolCallOutcome::Suspended => {
                let fields = acp::ToolCallUpdateFields::new().status(ToolCallStatus::Pending);
                return vec![SessionUpdate::ToolCallUpdate(acp::ToolCallUpdate::new(id.to_owned(), fields))];
            }
            ToolCallOutcome::Succeeded => ToolCallStatus::Completed,
            ToolCallOutcome::Failed | ToolCallOutcome::Cancelled => ToolCallStatus::Failed,
        };
        let call = self
            .calls
            .entry(id.to_owned())
            .or_insert_with(|| CallProgress { name: result.tool_name.clone(), ..CallProgress::default() });
        call.is_settled = true;
        let shown = result.shown().filter(|shown| !shown.trim().is_empty());
        let text = shown.map_or_else(|| result.model_text(), str::to_owned);
        let is_done = outcome == ToolCallOutcome::Succeeded;
        let diffs = if is_done { diffs_of(&call.name, &call.arguments, &self.cwd) } else { Vec::new() };
        let mut content = if diffs.is_empty() { contents(&fenced(&text), diffs) } else { diffs };
        for image in &result.images {
            if let ContentBlock::Image { media_type, data } = image {
                let image =
                    acp::ContentBlock::Image(acp::ImageContent::new(data.clone(), media_type.clone()));
                content.push(acp::ToolCallContent::Content(acp::Content::new(image)));
            }
        }
        let plan = (is_done && call.name == "TodoWrite").then(|| plan_of(&call.arguments)).flatten();
        let fields = acp::ToolCallUpdateFields::new().status(status).content(content);
        let update = SessionUpdate::ToolCallUpdate(acp::ToolCallUpdate::new(id.to_owned(), fields));
        std::iter::once(update).chain(plan).collect()
    }

    fn activity(&self, kind: &str, content: &Value) -> Vec<SessionUpdate> {
        match KnownActivity::of(kind, content) {
            Some(KnownActivity::Steered(message)) if !message.text.is_empty() => {
                vec![SessionUpdate::UserMessageChunk(text_chunk(&message.text))]
            }
            Some(KnownActivity::Notice(notice)) if self.has_notices => {
                let severity = match notice.level.as_deref() {
                    Some("warning") => acp::NoticeSeverity::Warning,
                    Some("error") => acp::NoticeSeverity::Error,
                    _ => acp::NoticeSeverity::Info,
                };
                vec![SessionUpdate::Notice(acp::Notice::new(
                    severity,
                    visible_line(&notice.text).into_owned(),
                ))]
            }
            _ => Vec::new(),
        }
    }
}

/// The id of a call in a session: those of a model are unique in a run only.
fn call_id(run: &str, call: &str) -> String {
    format!("{run}/{call}")
}

fn text_chunk(text: &str) -> acp::ContentChunk {
    acp::ContentChunk::new(acp::ContentBlock::Text(acp::TextContent::new(text)))
}

fn title_of(name: &str, arguments: &Value) -> String {
    let (name, summary) = (visible_line(name), call_summary(name, arguments));
    if name == "Bash" || *name == *summary { summary } else { format!("{name} {summary}") }
}

/// Returns the kind of a tool's calls.
fn kind_of(name: &str) -> ToolKind {
    match name {
        "Read" => ToolKind::Read,
        "Edit" | "Write" => ToolKind::Edit,
        "Bash" | "BashOutput" | "BashInput" | "KillShell" | "skill_script" => ToolKind::Execute,
        "Grep" | "Glob" | "List" => ToolKind::Search,
        "WebFetch" => ToolKind::Fetch,
        "TodoWrite" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// The file that a call names.
fn file_of(arguments: &Value, cwd: &Path) -> Option<PathBuf> {
    let path = arguments.get("file_path").or_else(|| arguments.get("path"))?.as_str()?;
    Some(cwd.join(path))
}

fn locations(arguments: &Value, cwd: &Path) -> Vec<acp::ToolCallLocation> {
    let line = arguments.get("offset").and_then(Value::as_u64).and_then(|line| u32::try_from(line).ok());
    let file = file_of(arguments, cwd).into_iter();
    file.map(|path| acp::ToolCallLocation::new(path).line(line)).collect()
}

/// Returns the change that the arguments of an Edit or Write call describe.
fn diffs_of(name: &str, arguments: &Value, cwd: &Path) -> Vec<acp::ToolCallContent> {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str).map(str::to_owned);
    let (old, new) = match name {
        "Edit" => (text("old_string"), text("new_string")),
        "Write" => (None, text("content")),
        _ => return Vec::new(),
    };
    let (Some(path), Some(new)) = (file_of(arguments, cwd), new) else { return Vec::new() };
    vec![acp::ToolCallContent::Diff(acp::Diff::new(path, new).old_text(old))]
}

/// Returns the changes that a question's call would make, with whole files.
fn previewed(files: Vec<FilePreview>) -> Vec<acp::ToolCallContent> {
    let diff = |file: FilePreview| {
        Some(acp::ToolCallContent::Diff(acp::Diff::new(file.path, file.new_text?).old_text(file.old_text)))
    };
    files.into_iter().filter_map(diff).collect()
}

/// A text, cut to its end, and differences.
fn contents(text: &str, diffs: Vec<acp::ToolCallContent>) -> Vec<acp::ToolCallContent> {
    let text = text.trim_end();
    let text = (!text.is_empty()).then(|| {
        let text = acp::ContentBlock::Text(acp::TextContent::new(text));
        acp::ToolCallContent::Content(acp::Content::new(text))
    });
    text.into_iter().chain(diffs).collect()
}

/// Returns where the last `max` bytes of a text start.
fn tail(text: &str, max: usize) -> usize {
    let from = text.len().saturating_sub(max);
    (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Output as a block of code, so that none of it is read as markdown. Its start is left out if it is long.
fn fenced(text: &str) -> String {
    let text = text.trim_end();
    if text.is_empty() {
        return String::new();
    }
    let from = tail(text, MAX_TEXT);
    let (lead, text) = if from > 0 { ("…\n", &text[from..]) } else { ("", text) };
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{lead}{text}\n{fence}")
}

/// The plan that a call of TodoWrite replaces the old one with.
fn plan_of(arguments: &Value) -> Option<SessionUpdate> {
    let entry = |todo: &Value| {
        let status = match todo.get("status").and_then(Value::as_str) {
            Some("in_progress") => acp::PlanEntryStatus::InProgress,
            Some("completed") => acp::PlanEntryStatus::Completed,
            Some(_) | None => acp::PlanEntryStatus::Pending,
        };
        let content = todo.get("content")?.as_str()?;
        Some(acp::PlanEntry::new(content, acp::PlanEntryPriority::Medium, status))
    };
    let todos = arguments.get("todos")?.as_array()?;
    Some(SessionUpdate::Plan(acp::Plan::new(todos.iter().filter_map(entry).collect())))
}

#[cfg(test)]
mod tests;
