//! Pending questions and their decisions.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::display::visible_line;
use super::grant::GrantRequest;
use super::ids::{CallId, DecisionId, SuspensionId};
use super::judgement::Profile;
use super::question::{Question, QuestionDetails};
use super::schema::{answer_command, example, example_with, is_fit};
use super::surface::Surface;

/// The action of a permission question.
pub const ACTION_PERMISSION: &str = "tool:PermissionConfirm";
/// The action of a question about a call with an unknown outcome.
pub const ACTION_UNKNOWN_OUTCOME: &str = "tool:UnknownOutcome";
/// The action of a question that a tool asks the user.
pub const ACTION_ASK_USER: &str = "tool:AskUser";
/// The action of a question about the run itself, which a plugin asked from a phase. It belongs to no call of the model.
pub const ACTION_RUN_QUESTION: &str = "run:Question";
/// The action of a run that waits for a time, at which it continues by itself. The answer only cuts the wait short, or
/// ends the run.
pub const ACTION_WAIT: &str = "run:Wait";
/// The action of a call that waits for a client to carry it out: the answer's payload is the result.
pub const ACTION_FRONTEND_TOOL: &str = "tool:Frontend";
/// The action of a call that another agent works on. It is not a question: only the runtime answers it, with
/// the end of the child's run.
pub const ACTION_CHILD_RUN: &str = "agent:ChildRun";

/// The channel of an [`Actor`] that is not a user but a setting: nobody could be asked.
pub const CHANNEL_POLICY: &str = "policy";
/// The channel of an [`Actor`] that sent a request to the server. The user's name contains the token's.
pub const CHANNEL_HTTP: &str = "http";
/// The channel of an [`Actor`] that is a child's run, which ended.
pub const CHANNEL_CHILD: &str = "child";
/// The channel of an [`Actor`] that is a remote agent, which no longer needs the answer.
pub const CHANNEL_REMOTE: &str = "remote";

/// The question of a suspended call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suspension {
    /// Unique over all threads: what `aye approve ID` takes.
    pub id: SuspensionId,
    /// The kind of answer expected, such as [`ACTION_PERMISSION`].
    pub action: String,
    /// The question's text for the user.
    pub message: String,
    /// The data that a front end needs to show the question, as [`Question`] reads it.
    #[serde(default)]
    pub parameters: Value,
    /// JSON Schema of the answer's payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// When the question ends unanswered, in Unix milliseconds; `None` is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// The call that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingToolCall {
    pub id: CallId,
    pub name: String,
    /// The arguments as the model gave them.
    pub arguments: Value,
}

/// The effect of a decision on the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallResumeMode {
    /// The call runs with its own arguments.
    #[default]
    ReplayToolCall,
    /// The answer is the result; the tool does not run.
    UseDecisionAsToolResult,
    /// The tool runs with the answer as its arguments.
    PassDecisionToTool,
}

/// A question, its call, and what an answer does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuspendTicket {
    pub suspension: Suspension,
    pub pending: PendingToolCall,
    /// The effect of an answer.
    pub resume_mode: ToolCallResumeMode,
}

impl SuspendTicket {
    /// Returns whether another agent works on the call: then the user is not asked.
    pub fn is_served(&self) -> bool {
        self.suspension.action == ACTION_CHILD_RUN
    }

    /// Whether an answer may carry data. Where only a yes or no is asked for, data would be a yes that nobody intended.
    pub fn takes_data(&self) -> bool {
        self.suspension.response_schema.is_some() || self.resume_mode != ToolCallResumeMode::ReplayToolCall
    }

    /// Returns the payload of a plain yes: nothing, or a form as it stands. `None`: the answer needs data, and a yes alone
    /// would say nothing.
    pub fn approval(&self) -> Option<Value> {
        let schema = match &self.suspension.response_schema {
            Some(schema) => schema,
            None if self.resume_mode == ToolCallResumeMode::UseDecisionAsToolResult && !self.is_served() => {
                return None;
            }
            None => return Some(Value::Null),
        };
        let form = self.form().and_then(|form| form.accepted());
        let answers = form.into_iter().chain([Value::Null]);
        answers.into_iter().find(|answer| is_fit(schema, answer))
    }

    /// Returns an answer that the question takes, as an example: that of a form carries its values.
    pub fn example_answer(&self) -> Value {
        let none = json!({});
        let schema = self.suspension.response_schema.as_ref().unwrap_or(&none);
        match self.form().and_then(|form| form.example_press()) {
            Some(pressed) => example_with(schema, pressed),
            None => example(schema),
        }
    }

    /// Returns the command that says yes, or that answers with an example if the question needs data. Whatever the id and
    /// the example contain, a shell runs this command and no other.
    pub fn answer_command(&self) -> String {
        let id = self.suspension.id.as_str();
        if self.suspension.response_schema.is_some() || self.approval().is_none() {
            return answer_command(id, &self.example_answer());
        }
        let shown = visible_line(id);
        format!("aye approve {}", shlex::try_quote(&shown).unwrap_or(Cow::Borrowed("ID")))
    }

    fn form(&self) -> Option<Box<Surface>> {
        match Question::of(&self.suspension).details {
            QuestionDetails::Form(form) => Some(form),
            _ => None,
        }
    }
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResumeDecisionAction {
    /// Continue as the resume mode defines.
    Resume,
    /// Do not.
    Cancel,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCallResume {
    /// Sending the same id again counts once.
    pub decision_id: DecisionId,
    pub action: ResumeDecisionAction,
    /// The payload; `null` if there is none. With a denial, `{"decision": "modify"}` requests the changes
    /// that the reason describes. With edited arguments, `{"shown": [{"path", "before"}]}` contains the files
    /// as they were when the user reviewed the edited version.
    #[serde(default)]
    pub result: Value,
    /// The user's comment on the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The arguments to run with instead, if the user edited them: the call then continues as under
    /// [`ToolCallResumeMode::PassDecisionToTool`], whatever its ticket says. Only an approval of a permission
    /// question may have arguments, and they must be an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The profile that the kernel enforces on the call, if the user chose another one than the one shown.
    /// Only an approval of a permission question may have a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Unix milliseconds.
    pub updated_at: u64,
}

/// An answer, before it gets its id and time.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub action: ResumeDecisionAction,
    pub result: Value,
    /// The user's comment on the answer.
    pub reason: Option<String>,
    /// The arguments to run with instead.
    pub arguments: Option<Value>,
    /// Another profile than the one that was shown.
    pub profile: Option<Profile>,
    /// The rule that is granted with it.
    pub grant: Option<GrantRequest>,
}

impl Answer {
    fn new(action: ResumeDecisionAction, result: Value) -> Self {
        Self { action, result, reason: None, arguments: None, profile: None, grant: None }
    }

    /// A yes with a payload.
    pub fn yes(result: Value) -> Self {
        Self::new(ResumeDecisionAction::Resume, result)
    }

    pub fn no(reason: Option<String>) -> Self {
        Self { reason, ..Self::new(ResumeDecisionAction::Cancel, Value::Null) }
    }

    /// A no that wants the call changed.
    pub fn modify(feedback: String) -> Self {
        Self { result: ToolCallResume::modify_payload(), ..Self::no(Some(feedback)) }
    }

    /// The answer as it is stored, with a fresh id. Its grant is a row of its own.
    pub fn resume(self, now_ms: u64) -> ToolCallResume {
        let Self { action, result, reason, arguments, profile, grant: _ } = self;
        let decision_id = DecisionId::fresh();
        ToolCallResume { decision_id, action, result, reason, arguments, profile, updated_at: now_ms }
    }
}

impl ToolCallResume {
    /// A yes: the call runs as it was shown. The id is fresh; keep the value to send the same decision again.
    pub fn approve() -> Self {
        Answer::yes(Value::Null).resume(0)
    }

    /// A no, with a reason for the model if there is one.
    pub fn deny(reason: Option<String>) -> Self {
        Answer::no(reason).resume(0)
    }

    /// A no that asks the model for another call.
    pub fn request_changes(feedback: impl Into<String>) -> Self {
        Answer::modify(feedback.into()).resume(0)
    }

    /// The data that a question asks for.
    pub fn answer(result: Value) -> Self {
        Answer::yes(result).resume(0)
    }

    /// A yes to the call with other arguments.
    pub fn approve_with(arguments: Value) -> Self {
        Self { arguments: Some(arguments), ..Self::approve() }
    }

    /// The payload of a no that wants the call changed: its reason says how.
    pub fn modify_payload() -> Value {
        json!({ "decision": "modify" })
    }

    /// Returns whether the answer denies the call and requests changes.
    pub fn is_modify(&self) -> bool {
        self.action == ResumeDecisionAction::Cancel
            && self.result.get("decision").and_then(Value::as_str) == Some("modify")
    }

    /// Returns the user's comment on the answer, if it is not blank.
    pub fn comment(&self) -> Option<&str> {
        self.reason.as_deref().map(str::trim).filter(|text| !text.is_empty())
    }
}

/// The actor who answered, and the channel of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    pub user: String,
    /// `tui`, `cli`, `headless`, `grant`, `policy`, ...
    pub channel: String,
    pub pid: u32,
    /// The user's numeric id: unlike the name, it cannot be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The terminal, such as `/dev/pts/3`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<String>,
}

impl Actor {
    /// Returns who it was, for users: the name and the channel, such as `lena (cli)`. The name of one who used the server
    /// says which device it was.
    pub fn shown(&self) -> String {
        if self.channel == CHANNEL_HTTP {
            self.user.clone()
        } else {
            format!("{} ({})", self.user, self.channel)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::surface::ACTION_SURFACE;

    fn ticket(
        action: &str,
        parameters: Value,
        schema: Option<Value>,
        mode: ToolCallResumeMode,
    ) -> SuspendTicket {
        SuspendTicket {
            suspension: Suspension {
                id: "q 1".into(),
                action: action.into(),
                message: "?".into(),
                parameters,
                response_schema: schema,
                expires_at: None,
            },
            pending: PendingToolCall { id: "c".into(), name: "t".into(), arguments: json!({}) },
            resume_mode: mode,
        }
    }

    #[test]
    fn a_yes_alone_is_no_data() {
        use ToolCallResumeMode::{ReplayToolCall, UseDecisionAsToolResult};
        let call = ticket(ACTION_PERMISSION, json!({}), None, ReplayToolCall);
        assert_eq!((call.approval(), call.answer_command()), (Some(Value::Null), "aye approve 'q 1'".into()));
        assert!(!call.takes_data());
        let client = ticket(ACTION_FRONTEND_TOOL, json!({}), None, UseDecisionAsToolResult);
        assert_eq!((client.approval(), client.answer_command()), (None, "aye answer 'q 1' '\"…\"'".into()));
        let served = ticket(ACTION_CHILD_RUN, json!({}), None, UseDecisionAsToolResult);
        assert_eq!(served.approval(), Some(Value::Null));
        let schema =
            json!({"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}});
        let asked = ticket(ACTION_ASK_USER, json!({}), Some(schema), UseDecisionAsToolResult);
        assert_eq!((asked.approval(), asked.example_answer()), (None, json!({"answer": "…"})));
    }

    #[test]
    fn a_form_is_accepted_as_it_stands_and_its_command_has_its_values() {
        let form = |buttons: &[&str], data: Value| {
            let mut components = json!({"root": {"kind": "Column", "props": {"children": buttons}}});
            for name in buttons {
                components[name] =
                    json!({"kind": "Button", "props": {"label": name, "action": {"name": name}}});
            }
            let surface = json!({"id": "s", "root": "root", "components": components, "data": data});
            let schema = json!({"type": "object", "required": ["userAction", "dataModel"], "properties": {
                "userAction": {"type": "object", "required": ["name", "surfaceId"]},
                "dataModel": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}});
            let mode = ToolCallResumeMode::UseDecisionAsToolResult;
            ticket(ACTION_SURFACE, json!({ "surface": surface }), Some(schema), mode)
        };
        let whole = form(&["order"], json!({"n": 3, "name": "Ada"}));
        let accepted = whole.approval().unwrap();
        assert_eq!(
            (&accepted["dataModel"]["name"], &accepted["userAction"]["name"]),
            (&json!("Ada"), &json!("order"))
        );
        let example =
            json!({"userAction": {"name": "order", "surfaceId": "s"}, "dataModel": {"n": 3, "name": "Ada"}});
        assert_eq!(whole.example_answer(), example);
        // A value is missing: the form cannot be accepted, and its command completes it.
        let partial = form(&["order"], json!({"name": "Ada"}));
        assert_eq!(partial.approval(), None);
        assert_eq!(partial.example_answer()["dataModel"], json!({"name": "Ada", "n": 1}));
        // Which of several buttons is a yes must be clear.
        assert_eq!(form(&["cancel", "order"], json!({"n": 3})).approval(), None);
        let clear = form(&["decline", "accept"], json!({"n": 3}));
        assert_eq!(clear.approval().unwrap()["userAction"]["name"], "accept");
        assert_eq!(clear.example_answer()["userAction"]["name"], "accept");
    }

    #[test]
    fn decisions_have_short_forms() {
        let yes = ToolCallResume::approve();
        assert_eq!((yes.action, &yes.result), (ResumeDecisionAction::Resume, &Value::Null));
        assert_ne!(yes.decision_id, ToolCallResume::approve().decision_id);
        let no = ToolCallResume::deny(Some("why".into()));
        assert_eq!(
            (no.action, no.comment(), no.is_modify()),
            (ResumeDecisionAction::Cancel, Some("why"), false)
        );
        assert!(ToolCallResume::request_changes("shorter").is_modify());
        assert_eq!(ToolCallResume::answer(json!(1)).result, json!(1));
        assert_eq!(ToolCallResume::approve_with(json!({"a": 1})).arguments, Some(json!({"a": 1})));
    }
}
