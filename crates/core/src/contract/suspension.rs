//! Pending questions and their decisions.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::grant::GrantRequest;
use super::ids::{CallId, DecisionId, SuspensionId};
use super::judgement::Profile;

/// The action of a permission question.
pub const ACTION_PERMISSION: &str = "tool:PermissionConfirm";
/// The action of a question about a call with an unknown outcome.
pub const ACTION_UNKNOWN_OUTCOME: &str = "tool:UnknownOutcome";
/// The action of a question that a tool asks the user.
pub const ACTION_ASK_USER: &str = "tool:AskUser";
/// The action of a question about the run itself, which a plugin asked from a phase. It belongs to no call of the model.
pub const ACTION_RUN_QUESTION: &str = "run:Question";
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
    /// The data that a front end needs to show the question, as [`Question`](super::question::Question) reads
    /// it.
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
    /// The call.
    pub id: CallId,
    /// The tool.
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
    /// The question.
    pub suspension: Suspension,
    /// The call.
    pub pending: PendingToolCall,
    /// The effect of an answer.
    pub resume_mode: ToolCallResumeMode,
}

impl SuspendTicket {
    /// Returns whether another agent works on the call: then the user is not asked.
    pub fn is_served(&self) -> bool {
        self.suspension.action == ACTION_CHILD_RUN
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

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCallResume {
    /// Sending the same id again counts once.
    pub decision_id: DecisionId,
    /// Yes or no.
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
    /// Yes or no.
    pub action: ResumeDecisionAction,
    /// The payload.
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

    /// A no.
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
    /// The user's name.
    pub user: String,
    /// `tui`, `cli`, `headless`, `grant`, `policy`, ...
    pub channel: String,
    /// The process.
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
