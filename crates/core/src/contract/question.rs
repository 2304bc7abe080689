//! A question as its readers need it: the parameters of its suspension, read once.
//!
//! The row keeps the parameters as they came, because tools, plugins and older versions write them. A member of another
//! shape than expected counts as absent, and the rest of the question is still shown.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::display::visible_line;
use super::grant::MissedGrant;
use super::judgement::{Profile, Risk};
use super::surface::{ACTION_SURFACE, Surface};
use super::suspension::{
    ACTION_ASK_USER, ACTION_CHILD_RUN, ACTION_FRONTEND_TOOL, ACTION_RUN_QUESTION, ACTION_UNKNOWN_OUTCOME,
    ACTION_WAIT, Suspension,
};
use super::terms::Notify;
use super::tool::FilePreview;

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
    /// A form.
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
    /// The choices.
    pub choices: Vec<QuestionChoice>,
    /// Whether several choices may be selected.
    pub is_multi: bool,
    /// Whether text may be entered instead.
    pub takes_text: bool,
}

/// One of the choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionChoice {
    /// The answer.
    pub label: String,
    /// Its explanation.
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
    /// The agent.
    pub agent: String,
    /// Its first message.
    pub prompt: String,
    /// The model, when it is not the parent's.
    pub model: Option<String>,
}

/// The changes between two versions of a question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StaleQuestion {
    /// The changes, one sentence each; empty for a question asked once.
    pub moved: Vec<String>,
    /// The changes of files in the meantime.
    pub deltas: Vec<FileDelta>,
    /// The message of the first version.
    pub message: Option<String>,
}

/// The changes of one file in the meantime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDelta {
    /// Its path.
    #[serde(default)]
    pub path: String,
    /// The difference.
    pub diff: String,
}

fn member<T: DeserializeOwned>(object: &Value, name: &str) -> Option<T> {
    T::deserialize(object.get(name)?).ok()
}

fn text(object: &Value, name: &str) -> Option<String> {
    member::<String>(object, name).filter(|text| !text.is_empty())
}

/// The entries that can be read.
fn list<T: DeserializeOwned>(object: &Value, name: &str) -> Vec<T> {
    let entries = object.get(name).and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(|entry| T::deserialize(entry).ok()).collect()
}

impl Question {
    /// Reads the parameters of a suspension.
    pub fn of(suspension: &Suspension) -> Self {
        let parameters = &suspension.parameters;
        let stale = parameters.get("stale").unwrap_or(&Value::Null);
        Self {
            why: text(parameters, "why"),
            cwd: text(parameters, "cwd"),
            notify: parameters.get("notify").and_then(|list| Notify::read_all(list).ok()).unwrap_or_default(),
            stale: StaleQuestion {
                moved: list(stale, "moved"),
                deltas: list(stale, "deltas"),
                message: member(stale, "message"),
            },
            files: suspension.files(),
            original: parameters.get("original").cloned(),
            details: QuestionDetails::of(&suspension.action, parameters),
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
    fn of(action: &str, parameters: &Value) -> Self {
        match action {
            ACTION_ASK_USER | ACTION_RUN_QUESTION | ACTION_WAIT => {
                Self::Choice(ChoiceQuestion::of(parameters))
            }
            ACTION_SURFACE => Self::Form(member(parameters, "surface").unwrap_or_default()),
            ACTION_UNKNOWN_OUTCOME => Self::UnknownOutcome(UnknownOutcome {
                output: text(parameters, "output"),
                started_at: member(parameters, "started_at"),
                found_at: member(parameters, "found_at"),
            }),
            ACTION_CHILD_RUN => Self::Child(ChildRequest {
                agent: text(parameters, "agent").unwrap_or_default(),
                prompt: text(parameters, "prompt").unwrap_or_default(),
                model: text(parameters, "model"),
            }),
            ACTION_FRONTEND_TOOL => Self::Client,
            _ => Self::Approval(ApprovalRequest {
                rule: text(parameters, "rule"),
                does: text(parameters, "does"),
                is_outside: member(parameters, "outside").unwrap_or_default(),
                risk: member(parameters, "risk"),
                danger: member(parameters, "danger"),
                profile: member(parameters, "profile"),
                proposals: list::<GrantProposal>(parameters, "proposals")
                    .into_iter()
                    .filter(|proposal| !proposal.pattern.is_empty())
                    .collect(),
                missed_grant: member(parameters, "grant"),
            }),
        }
    }
}

impl ChoiceQuestion {
    fn of(parameters: &Value) -> Self {
        let choice = |entry: Value| {
            // An older version stored a choice without a description as its label.
            let label = entry.as_str().map(str::to_owned).or_else(|| member(&entry, "label"))?;
            Some(QuestionChoice { label, description: text(&entry, "description") })
        };
        Self {
            question: text(parameters, "question"),
            header: text(parameters, "header").filter(|header| !header.trim().is_empty()),
            choices: list::<Value>(parameters, "choices").into_iter().filter_map(choice).collect(),
            is_multi: member(parameters, "multi").unwrap_or_default(),
            takes_text: member(parameters, "free_text").unwrap_or_default(),
        }
    }
}

impl Suspension {
    /// Returns the reason for the question, or its message if no reason is set.
    pub fn why(&self) -> Cow<'_, str> {
        text(&self.parameters, "why").map_or(Cow::Borrowed(&self.message), Cow::Owned)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contract::suspension::ACTION_PERMISSION;

    fn question(action: &str, parameters: Value) -> Question {
        let message = "Bash needs approval".to_owned();
        let (id, action) = ("q".into(), action.to_owned());
        let asked = Suspension { id, action, message, parameters, response_schema: None, expires_at: None };
        Question::of(&asked)
    }

    #[test]
    fn a_question_asks_in_words() {
        let plain = |does: &str| question(ACTION_PERMISSION, json!({ "does": does }));
        let none = json!({});
        for (does, text) in [
            ("opens /etc/shadow, outside this project", "Open /etc/shadow, outside this project?"),
            ("fetches https://example.com", "Fetch https://example.com?"),
            ("changes a note", "Change a note?"),
            ("uses the network", "Use the network?"),
        ] {
            assert_eq!(plain(does).asks("X", &none, &[], false), text);
        }
        let runs = plain("runs a command");
        let command = json!({"command": "make", "run_in_background": true});
        assert_eq!(runs.asks("Bash", &command, &[], false), "Run this command, in the background?");
        let described = json!({"command": "make test", "description": " run the tests. "});
        assert_eq!(runs.asks("Bash", &described, &[], false), "Run the tests?");
        let files = [("src/a.rs".to_owned(), false)];
        assert_eq!(runs.asks("Edit", &none, &files, true), "Edit src/a.rs, outside this project?");
        assert_eq!(runs.asks("Write", &none, &[("b".to_owned(), true)], false), "Create b?");
        let files = [("a".to_owned(), true), ("b".to_owned(), false)];
        assert_eq!(runs.asks("Patch", &none, &files, false), "Change 2 files?");
        let needs = plain("needs approval");
        for (tool, text) in [
            ("mcp__files__write_note", "Allow write_note (files)?"),
            ("agent_run_reviewer", "Allow agent reviewer?"),
            ("render_a2ui", "Allow a form?"),
            ("Memory", "Allow Memory?"),
        ] {
            assert_eq!(needs.asks(tool, &none, &[], false), text);
        }
    }

    #[test]
    fn one_invalid_member_does_not_hide_others() {
        let read = question(
            ACTION_PERMISSION,
            json!({
                "why": "no rule covers this", "rule": 3, "risk": "unheard of", "outside": "yes", "preview": {},
                "proposals": [{"pattern": ""}, 7, {"pattern": "Bash(ls)"}],
                "stale": {"moved": ["git moved", 1], "deltas": [{"diff": "+a"}, {}]},
            }),
        );
        assert_eq!(read.why.as_deref(), Some("no rule covers this"));
        assert_eq!((read.files.len(), read.proposals()[0].pattern.as_str()), (0, "Bash(ls)"));
        assert_eq!((read.stale.moved, read.stale.deltas.len()), (vec!["git moved".to_owned()], 1));
        let QuestionDetails::Approval(request) = read.details else { panic!("{:?}", read.details) };
        assert_eq!((request.rule, request.risk, request.is_outside), (None, None, false));
    }

    #[test]
    fn each_action_has_its_own_details() {
        let choices =
            json!({"question": "Which?", "header": " ", "choices": ["a", {"label": "b"}], "multi": true});
        let read = question(ACTION_ASK_USER, choices);
        let choice = read.choice().expect("a choice");
        let labels: Vec<&str> = choice.choices.iter().map(|choice| choice.label.as_str()).collect();
        assert_eq!((labels, choice.header.as_deref(), choice.is_multi), (vec!["a", "b"], None, true));
        let read = question(ACTION_CHILD_RUN, json!({"agent": "reviewer", "prompt": "look"}));
        let child = ChildRequest { agent: "reviewer".into(), prompt: "look".into(), model: None };
        assert_eq!(read.details, QuestionDetails::Child(child));
        let read = question(ACTION_SURFACE, json!({"surface": 3}));
        assert_eq!(read.details, QuestionDetails::Form(Box::default()));
        assert!(question("plugin:own", json!("no object")).approval().is_some());
    }
}
