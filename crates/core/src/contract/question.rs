//! A question: its members as they are written and read, and what its readers need of them.
//!
//! The row keeps the parameters as they came, because tools, plugins and older versions write them. A member of another
//! shape than expected counts as absent, and the rest of the question is still shown.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::display::visible_line;
use super::file_preview::FilePreview;
use super::grant::MissedGrant;
use super::ids::ThreadId;
use super::judgement::{Profile, Risk};
use super::surface::{ACTION_SURFACE, Surface};
use super::suspension::{
    ACTION_ASK_USER, ACTION_CHILD_RUN, ACTION_FRONTEND_TOOL, ACTION_RUN_QUESTION, ACTION_UNKNOWN_OUTCOME,
    ACTION_WAIT, Suspension,
};
use super::terms::Notify;
use crate::state::Phase;

/// A pending question. An empty text counts as absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The reason for the question.
    pub why: Option<String>,
    /// The folder that the call would run in.
    pub cwd: Option<String>,
    /// The ways users are notified of the question.
    pub notify: Vec<Notify>,
    /// The changes since the question was first asked.
    pub stale: StaleQuestion,
    /// The changes that the call would make to files.
    pub files: Vec<FilePreview>,
    /// The arguments of the model, when the user edited them before the question was asked again.
    pub original: Option<Value>,
    /// The details for questions of this kind.
    pub details: QuestionDetails,
}

/// The details for questions of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum QuestionDetails {
    /// An approval request for a call; also the question of a plugin with an action of its own.
    Approval(ApprovalRequest),
    /// A choice, text, or both.
    Choice(ChoiceQuestion),
    Form(Box<Surface>),
    /// A question about a call that may have run.
    UnknownOutcome(UnknownOutcome),
    /// Another agent works on the call.
    Child(ChildRequest),
    /// A client carries the call out.
    Client,
}

impl Default for QuestionDetails {
    fn default() -> Self {
        Self::Approval(ApprovalRequest::default())
    }
}

/// An approval request for a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApprovalRequest {
    /// The rule that asks.
    pub rule: Option<String>,
    /// The effect of the call, as the rest of a sentence.
    pub does: Option<String>,
    /// Whether the file that the call opens is outside the project.
    pub is_outside: bool,
    /// The risk of the call in the worst case.
    pub risk: Option<Risk>,
    /// What is dangerous about the call. `None`: the question is of a version that did not say.
    pub danger: Option<Danger>,
    /// The profile that the kernel enforces after a plain approval; `None` for calls that start no command.
    pub profile: Option<Profile>,
    /// Rules that would answer the question from now on.
    pub proposals: Vec<GrantProposal>,
    /// The grant that would have answered the question.
    pub missed_grant: Option<MissedGrant>,
}

/// What is dangerous about a call, for the user's eye: it never allows a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Danger {
    /// What the call does, each as the rest of a sentence: `deletes files`.
    #[serde(default)]
    pub what: Vec<String>,
    /// The words of the command that make it so.
    #[serde(default)]
    pub words: Vec<String>,
}

impl Danger {
    /// Adds what the call does, and the words that make it so. What was added before is not added again.
    pub fn add(&mut self, what: &str, words: impl IntoIterator<Item = String>) {
        if !self.what.iter().any(|known| known == what) {
            self.what.push(what.to_owned());
        }
        for word in words {
            if !self.words.contains(&word) {
                self.words.push(word);
            }
        }
    }

    /// Returns what the call does as one sentence; `None` if it is not dangerous.
    pub fn title(&self) -> Option<String> {
        let text = match self.what.as_slice() {
            [] => return None,
            [one] => one.clone(),
            [all @ .., last] => format!("{} and {last}", all.join(", ")),
        };
        let mut chars = text.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect())
    }
}

impl ApprovalRequest {
    /// Returns what is dangerous about the call as a sentence; `None` if nothing is.
    pub fn danger_title(&self) -> Option<String> {
        match &self.danger {
            Some(danger) => danger.title(),
            // An older version asked, which knew only the class.
            None if self.risk == Some(Risk::Destroys) => {
                Some("Can delete, overwrite or stop something".to_owned())
            }
            None => None,
        }
    }
}

/// A rule that would answer a question from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantProposal {
    /// The pattern of the allow rule.
    pub pattern: String,
    /// The description of what the rule allows, for users.
    #[serde(default)]
    pub text: String,
}

/// A question with choices, text, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChoiceQuestion {
    /// The question; the suspension's message when it is absent.
    pub question: Option<String>,
    /// One to three words above it.
    pub header: Option<String>,
    pub choices: Vec<QuestionChoice>,
    /// Whether several choices may be selected.
    pub is_multi: bool,
    /// Whether text may be entered instead.
    pub takes_text: bool,
}

/// One of the choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionChoice {
    pub label: String,
    pub description: Option<String>,
}

/// The known facts about a call that may have run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownOutcome {
    /// The end of its output.
    pub output: Option<String>,
    /// When the call started, in Unix milliseconds.
    pub started_at: Option<u64>,
    /// When the call was found interrupted, in Unix milliseconds.
    pub found_at: Option<u64>,
}

/// The work that a child run is started for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildRequest {
    pub agent: String,
    /// Its first message.
    pub prompt: String,
    /// The model, when it is not the parent's.
    pub model: Option<String>,
}

/// The changes between two versions of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StaleQuestion {
    /// The changes, one sentence each; empty for a question asked once.
    #[serde(deserialize_with = "readable")]
    pub moved: Vec<String>,
    /// The changes of files in the meantime.
    #[serde(deserialize_with = "readable")]
    pub deltas: Vec<FileDelta>,
    /// The message of the first version.
    #[serde(deserialize_with = "lenient")]
    pub message: Option<String>,
}

/// The changes of one file in the meantime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDelta {
    #[serde(default)]
    pub path: String,
    pub diff: String,
}

/// Reads a member; one of another shape counts as absent.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Ok(T::deserialize(Value::deserialize(from)?).ok())
}

/// Reads the entries that can be read.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    let Value::Array(entries) = Value::deserialize(from)? else { return Ok(Vec::new()) };
    Ok(entries.into_iter().filter_map(|entry| T::deserialize(entry).ok()).collect())
}

fn readable_list<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    readable(from).map(Some)
}

macro_rules! parameters {
    ($($(#[doc = $doc:literal])* $read:literal $name:ident: $kind:ty,)*) => {
        /// The members of a question, as producers write them and readers read them. Each kind of question has some of
        /// them; the order is that of the rows. `Some(None)` is a member that is `null`.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct QuestionParameters {
            $(
                $(#[doc = $doc])*
                #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = $read)]
                pub $name: Option<$kind>,
            )*
            /// Members that are not known here.
            #[serde(flatten)]
            pub other: Map<String, Value>,
        }
    };
}

parameters! {
    /// The end of the output of a call that may have run.
    "lenient" output: String,
    /// When that call started, in Unix milliseconds.
    "lenient" started_at: Option<u64>,
    /// When it was found interrupted, in Unix milliseconds.
    "lenient" found_at: u64,
    "lenient" attempt: u32,
    /// The agent of a child run.
    "lenient" agent: String,
    /// Its first message.
    "lenient" prompt: String,
    "lenient" thread: ThreadId,
    /// The skill that the child run carries out, or that asks for consent.
    "lenient" skill: String,
    /// The model of a child run, when it is not the parent's.
    "lenient" model: String,
    /// The location of a skill that asks for consent.
    "lenient" location: String,
    /// The hash of its text.
    "lenient" hash: String,
    /// The patterns that it would allow.
    "readable_list" allowed_tools: Vec<String>,
    /// The text of a choice.
    "lenient" question: String,
    /// One to three words above it.
    "lenient" header: Option<String>,
    "readable_list" choices: Vec<WrittenChoice>,
    /// Whether several choices may be selected.
    "lenient" multi: bool,
    /// Whether text may be entered instead.
    "lenient" free_text: bool,
    /// The phase whose hook asks.
    "lenient" phase: Phase,
    "lenient" surface: Box<Surface>,
    /// The tool of the call.
    "lenient" tool: String,
    /// The arguments that are proposed.
    "lenient" args: Value,
    /// The arguments of a call that a client carries out.
    "lenient" arguments: Value,
    /// The rule that asks.
    "lenient" rule: Option<String>,
    /// Where the rule or hook that asks is written.
    "lenient" origin: Option<String>,
    /// The reason for the question.
    "lenient" why: String,
    /// The folder that the call would run in.
    "lenient" cwd: String,
    /// The risk of the call in the worst case.
    "lenient" risk: Risk,
    /// What is dangerous about the call.
    "lenient" danger: Danger,
    /// The effect of the call, as the rest of a sentence.
    "lenient" does: String,
    /// Whether the file that the call opens is outside the project.
    "lenient" outside: bool,
    /// The profile that the kernel enforces after a plain approval.
    "lenient" profile: Option<Profile>,
    /// Rules that would answer the question from now on.
    "readable_list" proposals: Vec<GrantProposal>,
    /// The hooks that ask.
    "readable_list" hooks: Vec<String>,
    /// The ways users are notified.
    "lenient" notify: Value,
    /// The paths that were judged.
    "lenient" paths: Value,
    /// Whether the settings list domains that the command may reach.
    "lenient" domains: bool,
    /// The grant that would have answered the question.
    "lenient" grant: MissedGrant,
    /// The preconditions of an answer.
    "lenient" world: Value,
    /// The arguments of the model, when the user edited them before the question was asked again.
    "lenient" original: Value,
    /// The changes that the call would make to files.
    "lenient" preview: Vec<FilePreview>,
    /// The client's id for the request that the run serves.
    "lenient" correlation_id: String,
    /// The changes since the question was first asked.
    "lenient" stale: StaleQuestion,
}

/// A choice, as its row keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct WrittenChoice {
    pub label: String,
    /// Its explanation; `Some(None)` is `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Option<String>>,
    /// The value that a plugin reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl TryFrom<Value> for WrittenChoice {
    type Error = &'static str;

    fn try_from(mut entry: Value) -> Result<Self, Self::Error> {
        // An older version stored a choice without a description as its label.
        if let Value::String(label) = entry {
            return Ok(Self { label, ..Self::default() });
        }
        let label = member(&entry, "label").ok_or("a choice without a label")?;
        let description = member(&entry, "description");
        Ok(Self { label, description, value: entry.get_mut("value").map(Value::take) })
    }
}

impl From<QuestionParameters> for Value {
    fn from(parameters: QuestionParameters) -> Self {
        // No member of it can fail to be written.
        serde_json::to_value(parameters).unwrap_or_default()
    }
}

impl QuestionParameters {
    /// Reads parameters, whoever wrote them.
    pub fn read(parameters: &Value) -> Self {
        Self::deserialize(parameters).unwrap_or_default()
    }
}

fn member<T: DeserializeOwned>(object: &Value, name: &str) -> Option<T> {
    T::deserialize(object.get(name)?).ok()
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl Question {
    /// Reads the parameters of a suspension.
    pub fn of(suspension: &Suspension) -> Self {
        let mut read = QuestionParameters::read(&suspension.parameters);
        Self {
            why: filled(read.why.take()),
            cwd: filled(read.cwd.take()),
            notify: read.notify.as_ref().and_then(|list| Notify::read_all(list).ok()).unwrap_or_default(),
            stale: read.stale.take().unwrap_or_default(),
            files: read.preview.take().unwrap_or_default(),
            original: read.original.take(),
            details: QuestionDetails::of(&suspension.action, read),
        }
    }

    /// Returns the approval request, if the question is about a call that needs approval.
    pub fn approval(&self) -> Option<&ApprovalRequest> {
        match &self.details {
            QuestionDetails::Approval(request) => Some(request),
            _ => None,
        }
    }

    /// Rules that would answer it from now on.
    pub fn proposals(&self) -> &[GrantProposal] {
        self.approval().map_or(&[], |request| &request.proposals)
    }

    /// Returns what a question about a call asks, in the user's words: from what the model says that a command does, else
    /// from the call. `files` are the files that the call changes, and whether each is new; `is_outside`, whether the
    /// call leaves the project.
    pub fn asks(&self, tool: &str, args: &Value, files: &[(String, bool)], is_outside: bool) -> String {
        let outside = if is_outside { ", outside this project" } else { "" };
        match files {
            [] => {}
            [(path, is_new)] => {
                let verb = if *is_new { "Create" } else { "Edit" };
                return format!("{verb} {}{outside}?", visible_line(path));
            }
            files => return format!("Change {} files?", files.len()),
        }
        let command = args.get("command").and_then(Value::as_str);
        let description = args.get("description").and_then(Value::as_str).map(str::trim).unwrap_or_default();
        let does = self.approval().and_then(|request| request.does.as_deref());
        let text = match (command, does) {
            (Some(_), _) if !description.is_empty() => sentence(&visible_line(description)),
            (Some(_), _) => "Run this command".to_owned(),
            (None, Some("needs approval") | None) => format!("Allow {}", visible_line(&tool_words(tool))),
            (None, Some(does)) => imperative(&visible_line(does)),
        };
        let is_set = |name: &str| args.get(name) == Some(&Value::Bool(true));
        let how = match (is_set("tty"), is_set("run_in_background")) {
            (true, _) => ", in a terminal in the background",
            (false, true) => ", in the background",
            (false, false) => "",
        };
        format!("{text}{how}?")
    }

    /// Returns the choice, if the question has choices or text.
    pub fn choice(&self) -> Option<&ChoiceQuestion> {
        match &self.details {
            QuestionDetails::Choice(question) => Some(question),
            _ => None,
        }
    }
}

/// Splits the id of an MCP server's tool, `mcp__SERVER__TOOL`, into server and tool; `None` for any other tool.
pub fn server_tool(id: &str) -> Option<(&str, &str)> {
    id.strip_prefix("mcp__")?.split_once("__")
}

/// Returns a tool's id in words: `write_note (files)` for `mcp__files__write_note`, `agent reviewer` for
/// `agent_run_reviewer`.
pub fn tool_words(id: &str) -> String {
    if let Some((server, tool)) = server_tool(id) {
        return format!("{tool} ({server})");
    }
    match (id, id.strip_prefix("agent_run_")) {
        (_, Some(agent)) => format!("agent {agent}"),
        ("render_a2ui", None) => "a form".to_owned(),
        _ => id.to_owned(),
    }
}

/// Returns what a question is about in a list, on one line: `$ make`, `Edit src/main.rs`, or the question of the agent
/// itself. `summary` is the [`call_summary`](super::display::call_summary) of the call.
pub fn subject(action: &str, tool: &str, summary: &str) -> String {
    let is_question = match action {
        ACTION_ASK_USER => server_tool(tool).is_none(),
        _ => [ACTION_RUN_QUESTION, ACTION_WAIT].contains(&action),
    };
    if is_question && tool != summary {
        return summary.to_owned();
    }
    let words = tool_words(tool);
    let words = visible_line(&words);
    let call = match tool {
        "render_a2ui" => "a form of the agent".to_owned(),
        // A call without arguments is summarised by its name.
        _ if tool == summary => words.into_owned(),
        "Bash" => format!("$ {summary}"),
        "AskUser" => format!("Ask: {summary}"),
        "WebFetch" => format!("Fetch {summary}"),
        "Grep" => format!("Search for {summary}"),
        "Glob" => format!("Look for {summary}"),
        _ => format!("{words} {summary}"),
    };
    if action == ACTION_UNKNOWN_OUTCOME { format!("outcome unknown: {call}") } else { call }
}

/// The text with a capital, and without the mark at its end.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches(['.', '?', '!', '…', ':']);
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// `opens x` as `Open x`.
fn imperative(does: &str) -> String {
    let (verb, rest) = does.split_once(' ').unwrap_or((does, ""));
    let stem = ["ches", "shes", "sses", "xes"].iter().any(|end| verb.ends_with(end));
    let stem = if stem { verb.strip_suffix("es") } else { verb.strip_suffix('s') };
    sentence(&format!("{} {rest}", stem.unwrap_or(verb)))
}

impl QuestionDetails {
    fn of(action: &str, read: QuestionParameters) -> Self {
        match action {
            ACTION_ASK_USER | ACTION_RUN_QUESTION | ACTION_WAIT => Self::Choice(ChoiceQuestion::of(read)),
            ACTION_SURFACE => Self::Form(read.surface.unwrap_or_default()),
            ACTION_UNKNOWN_OUTCOME => Self::UnknownOutcome(UnknownOutcome {
                output: filled(read.output),
                started_at: read.started_at.flatten(),
                found_at: read.found_at,
            }),
            ACTION_CHILD_RUN => Self::Child(ChildRequest {
                agent: read.agent.unwrap_or_default(),
                prompt: read.prompt.unwrap_or_default(),
                model: filled(read.model),
            }),
            ACTION_FRONTEND_TOOL => Self::Client,
            _ => Self::Approval(ApprovalRequest {
                rule: filled(read.rule.flatten()),
                does: filled(read.does),
                is_outside: read.outside.unwrap_or_default(),
                risk: read.risk,
                danger: read.danger,
                profile: read.profile.flatten(),
                proposals: read
                    .proposals
                    .into_iter()
                    .flatten()
                    .filter(|proposal| !proposal.pattern.is_empty())
                    .collect(),
                missed_grant: read.grant,
            }),
        }
    }
}

impl ChoiceQuestion {
    fn of(read: QuestionParameters) -> Self {
        let choice = |written: WrittenChoice| QuestionChoice {
            label: written.label,
            description: filled(written.description.flatten()),
        };
        Self {
            question: filled(read.question),
            header: read.header.flatten().filter(|header| !header.trim().is_empty()),
            choices: read.choices.into_iter().flatten().map(choice).collect(),
            is_multi: read.multi.unwrap_or_default(),
            takes_text: read.free_text.unwrap_or_default(),
        }
    }
}

impl Suspension {
    /// Adds members to the question; one that it has already is replaced at its place. Nothing is added to parameters that
    /// are not an object.
    pub fn add(&mut self, members: QuestionParameters) {
        if self.parameters.is_null() {
            self.parameters = Map::new().into();
        }
        if let (Value::Object(known), Value::Object(members)) = (&mut self.parameters, members.into()) {
            known.extend(members);
        }
    }

    /// Replaces the ways users are notified.
    pub fn set_notify(&mut self, notify: Option<Value>) {
        if let Value::Object(known) = &mut self.parameters {
            known.remove("notify");
            self.add(QuestionParameters { notify, ..QuestionParameters::default() });
        }
    }

    /// Replaces the arguments that are proposed, and removes the rules that were proposed for those before.
    pub fn set_args(&mut self, args: Value) {
        if let Value::Object(known) = &mut self.parameters {
            known.remove("proposals");
            self.add(QuestionParameters { args: Some(args), ..QuestionParameters::default() });
        }
    }

    /// Returns the reason for the question, or its message if no reason is set.
    pub fn why(&self) -> Cow<'_, str> {
        filled(member(&self.parameters, "why")).map_or(Cow::Borrowed(&self.message), Cow::Owned)
    }

    /// Returns the folder that the call would run in.
    pub fn cwd(&self) -> Option<String> {
        member(&self.parameters, "cwd")
    }

    /// Returns the client's id for the request that the run serves.
    pub fn correlation_id(&self) -> Option<&str> {
        self.parameters.get("correlation_id")?.as_str()
    }

    /// Returns the ways users are notified; `None` if they cannot be read.
    pub fn notify(&self) -> Option<Vec<Notify>> {
        Notify::read_all(self.parameters.get("notify")?).ok()
    }

    /// Returns the hooks that ask.
    pub fn hooks(&self) -> Vec<String> {
        QuestionParameters::read(&self.parameters).hooks.unwrap_or_default()
    }

    /// Returns the paths that were judged.
    pub fn paths<T: DeserializeOwned>(&self) -> Option<Vec<T>> {
        member(&self.parameters, "paths")
    }

    /// Returns the preconditions of an answer, if the question has any.
    pub fn world(&self) -> Option<&Value> {
        self.parameters.get("world")
    }

    /// Returns whether the question shows changes of files.
    pub fn has_preview(&self) -> bool {
        self.parameters.get("preview").is_some()
    }

    /// Returns when the run continues by itself, in Unix milliseconds, if it waits for a time and asks only whether to
    /// continue before.
    pub fn resumes_at(&self) -> Option<u64> {
        self.expires_at.filter(|_| self.action == ACTION_WAIT)
    }

    /// Returns how long until the run continues by itself, in words, if it waits for a time.
    pub fn resumes_in(&self, now_ms: u64) -> Option<String> {
        let left = self.resumes_at()?.saturating_sub(now_ms).div_ceil(60_000);
        Some(match left {
            0..=120 => format!("{left} min"),
            121..=2880 => format!("{} h", left / 60),
            _ => format!("{} d", left / 1440),
        })
    }

    /// Returns whether the answer is a choice or text.
    pub fn is_choice(&self) -> bool {
        [ACTION_ASK_USER, ACTION_RUN_QUESTION, ACTION_WAIT].contains(&self.action.as_str())
    }

    /// Returns the risk of the call in the worst case.
    pub fn risk(&self) -> Option<Risk> {
        member(&self.parameters, "risk")
    }

    /// Returns the profile that the kernel enforces after a plain approval; `None` for calls that start no
    /// command.
    pub fn profile(&self) -> Option<Profile> {
        member(&self.parameters, "profile")
    }

    /// Returns what the call can reach after a plain approval, in words.
    pub fn reach(&self) -> Option<&'static str> {
        let domains = member(&self.parameters, "domains").unwrap_or_default();
        self.profile().map(|profile| profile.reach(domains))
    }

    /// Returns the changes that the call would make to files.
    pub fn files(&self) -> Vec<FilePreview> {
        member(&self.parameters, "preview").unwrap_or_default()
    }
}
