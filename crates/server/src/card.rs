//! A question as a front end far away shows it: everything that is needed to answer it, in plain members.

use aye_core::contract::diff::unified;
use aye_core::contract::display::{call_summary, visible};
use aye_core::contract::judgement::{Profile, Risk};
use aye_core::contract::question::{ApprovalRequest, GrantProposal, Question, server_tool, tool_words};
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus, ThreadRecord};
use aye_core::contract::suspension::{
    ACTION_CHILD_RUN, ACTION_FRONTEND_TOOL, ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME, Actor,
    ResumeDecisionAction,
};
use aye_core::contract::tool::FilePreview;
use aye_session::shown_hash;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Lines around a change.
const CONTEXT: usize = 3;

/// The kind of answer that a question needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// A yes or a no to a call.
    Permission,
    /// Values for a form, or a choice.
    Form,
    /// The outcome of a call that may have run.
    UnknownOutcome,
    /// A subagent works on the call; no user is asked.
    Child,
    /// A client carries the call out and answers with its result.
    Client,
}

impl QuestionKind {
    fn of(action: &str) -> Self {
        match action {
            ACTION_PERMISSION => Self::Permission,
            ACTION_UNKNOWN_OUTCOME => Self::UnknownOutcome,
            ACTION_CHILD_RUN => Self::Child,
            ACTION_FRONTEND_TOOL => Self::Client,
            // Questions of the model, of servers and of plugins.
            _ => Self::Form,
        }
    }
}

/// A file that the call changes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CardFile {
    /// Its path.
    pub path: String,
    /// Whether the file exists.
    pub exists: bool,
    /// The change as a unified diff; `None` if the file is not text or is too long to show.
    pub diff: Option<String>,
}

/// A rule that would answer the question from now on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProposedGrant {
    /// The rule.
    pub pattern: String,
    /// A description of what the rule allows.
    pub words: String,
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CardDecision {
    /// Yes or no.
    pub action: ResumeDecisionAction,
    /// The comment on the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user who answered.
    pub by: Option<CardActor>,
}

/// The user who answered, without the ids of their process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CardActor {
    /// The user.
    pub user: String,
    /// Through what: `tui`, `cli`, `http`, ...
    pub channel: String,
}

impl From<&Actor> for CardActor {
    fn from(actor: &Actor) -> Self {
        Self { user: actor.user.clone(), channel: actor.channel.clone() }
    }
}

/// What makes a call dangerous.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CardDanger {
    /// A sentence: `Deletes files and force-pushes`.
    pub title: String,
    /// The words of the command that make it so: `rm -rf`.
    pub words: Vec<String>,
}

/// A question.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QuestionCard {
    /// Its id.
    pub id: String,
    /// The conversation.
    pub thread_id: String,
    /// The conversation's title.
    pub thread_title: String,
    /// The folder it works in.
    pub cwd: String,
    /// The run.
    pub run_id: String,
    /// The call.
    pub call_id: String,
    /// The client's id of the request that the run serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The state of the question.
    pub status: SuspensionStatus,
    /// Asked, in Unix milliseconds.
    pub created_at: u64,
    /// When it ends unanswered, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// The kind of answer that the question needs.
    pub kind: QuestionKind,
    /// The tool.
    pub tool: String,
    /// The call in a few words.
    pub title: String,
    /// A summary of the call on one line.
    pub summary: String,
    /// The question as a sentence.
    pub message: String,
    /// The reason for the question.
    pub why: String,
    /// What makes the call dangerous, which the title says, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub danger: Option<CardDanger>,
    /// The worst that the call can do.
    pub risk: Option<Risk>,
    /// The sandbox profile that the kernel enforces after a plain approval.
    pub profile: Option<Profile>,
    /// The same in words.
    pub reach: Option<&'static str>,
    /// The command line, for calls that run one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The arguments that will run.
    pub arguments: Value,
    /// The files that will change.
    pub files: Vec<CardFile>,
    /// Changes since the question was first asked.
    pub moved: Vec<String>,
    /// Rules that would answer it from now on.
    pub proposals: Vec<ProposedGrant>,
    /// The JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// A hash of everything above that will run: an approval names it.
    pub shown_hash: String,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<CardDecision>,
}

impl QuestionCard {
    /// The card of a question.
    pub fn of(record: &SuspensionRecord, thread: Option<&ThreadRecord>) -> Self {
        let (suspension, pending) = (&record.ticket.suspension, &record.ticket.pending);
        let question = Question::of(suspension);
        let kind = QuestionKind::of(&suspension.action);
        let proposed = |GrantProposal { pattern, text }: &GrantProposal| {
            let words = if text.is_empty() { pattern } else { text };
            ProposedGrant { pattern: pattern.clone(), words: words.clone() }
        };
        let profile = suspension.profile();
        let request = question.approval().filter(|_| kind == QuestionKind::Permission);
        let danger = request.and_then(|request| {
            let words = request.danger.as_ref().map(|danger| danger.words.clone()).unwrap_or_default();
            Some(CardDanger { title: request.danger_title()?, words })
        });
        Self {
            id: record.id.to_string(),
            thread_id: record.thread_id.to_string(),
            thread_title: thread.map(|thread| thread.title.clone()).unwrap_or_default(),
            title: title(kind, &pending.name, &pending.arguments, &question),
            proposals: question.proposals().iter().map(proposed).collect(),
            cwd: question.cwd.unwrap_or_else(|| {
                thread.map(|thread| thread.cwd.to_string_lossy().into_owned()).unwrap_or_default()
            }),
            run_id: record.run_id.to_string(),
            call_id: record.call_id.to_string(),
            correlation_id: record.correlation_id().map(str::to_owned),
            status: record.status,
            created_at: record.created_at,
            expires_at: suspension.expires_at,
            kind,
            tool: pending.name.clone(),
            summary: call_summary(&pending.name, &pending.arguments),
            message: suspension.message.clone(),
            why: suspension.why().into_owned(),
            danger,
            risk: suspension.risk(),
            profile,
            reach: suspension.reach(),
            command: pending.arguments.get("command").and_then(Value::as_str).map(str::to_owned),
            arguments: pending.arguments.clone(),
            files: question.files.iter().map(changed).collect(),
            moved: question.stale.moved,
            response_schema: suspension.response_schema.clone(),
            shown_hash: shown_hash(record),
            decision: record.decision.as_ref().map(|decision| CardDecision {
                action: decision.action,
                reason: decision.reason.clone(),
                by: record.decided_by.as_ref().map(CardActor::from),
            }),
        }
    }
}

/// Returns the title that the terminal's card has, too: the danger of a call if there is one, otherwise the question.
fn title(kind: QuestionKind, tool: &str, arguments: &Value, question: &Question) -> String {
    let request = question.approval();
    let id = tool;
    let words = tool_words(tool);
    let tool = visible(&words);
    match kind {
        QuestionKind::Permission => {
            if let Some(danger) = request.and_then(ApprovalRequest::danger_title) {
                return visible(&danger).into_owned();
            }
            let file = |file: &FilePreview| {
                let inside = question.cwd.as_ref().and_then(|cwd| file.path.strip_prefix(cwd).ok());
                let path = inside.unwrap_or(&file.path);
                (path.to_string_lossy().into_owned(), file.before.is_none())
            };
            let files: Vec<(String, bool)> = question.files.iter().map(file).collect();
            question.asks(id, arguments, &files, request.is_some_and(|request| request.is_outside))
        }
        QuestionKind::Form => match question.choice().and_then(|choice| choice.header.as_deref()) {
            Some(header) => format!("The agent asks · {}", visible(header)),
            None => match server_tool(id) {
                Some((server, _)) => format!("The server {} asks", visible(server)),
                None => "The agent asks".to_owned(),
            },
        },
        QuestionKind::UnknownOutcome => format!("{tool} was interrupted: its outcome is unknown"),
        QuestionKind::Child => format!("{tool} is working"),
        QuestionKind::Client => format!("{tool} waits for its client"),
    }
}

fn changed(file: &FilePreview) -> CardFile {
    let exists = file.before.is_some();
    let path = file.path.to_string_lossy().into_owned();
    let old = if exists { file.old_text.as_deref() } else { Some("") };
    let diff = old.zip(file.new_text.as_deref()).map(|(old, new)| {
        let (from, to) = (if exists { path.as_str() } else { "/dev/null" }, path.as_str());
        unified(old, new, Some((from, to)), CONTEXT)
    });
    CardFile { path, exists, diff }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aye_core::contract::suspension::{PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode};
    use serde_json::json;

    fn record(parameters: Value) -> SuspensionRecord {
        SuspensionRecord {
            id: "q".into(),
            thread_id: "t".into(),
            run_id: "r".into(),
            call_id: "c".into(),
            ticket: SuspendTicket {
                suspension: Suspension {
                    id: "q".into(),
                    action: ACTION_PERMISSION.into(),
                    message: "Edit changes a file: no rule covers this".into(),
                    parameters,
                    response_schema: None,
                    expires_at: None,
                },
                pending: PendingToolCall {
                    id: "c".into(),
                    name: "Edit".into(),
                    arguments: json!({"path": "a"}),
                },
                resume_mode: ToolCallResumeMode::ReplayToolCall,
            },
            status: SuspensionStatus::Open,
            created_at: 1,
            decision: None,
            decided_by: None,
        }
    }

    #[test]
    fn a_card_says_what_will_happen() {
        let preview = json!([{"path": "/w/a", "before": "00", "after": "11", "old_text": "one\ntwo\n", "new_text": "one\n2\n"}]);
        let asked = record(json!({
            "why": "no rule covers this", "does": "wants to change a file", "outside": true, "profile": "workspace",
            "preview": preview, "proposals": [{"pattern": "Edit(a)", "text": "edits of a"}], "risk": "edits",
        }));
        let card = QuestionCard::of(&asked, None);
        assert_eq!(card.title, "Edit /w/a, outside this project?");
        assert_eq!(
            card.files[0].diff.as_deref(),
            Some("--- /w/a\n+++ /w/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
        );
        assert_eq!(card.proposals[0].pattern, "Edit(a)");
        assert_eq!(card.reach, Some(Profile::Workspace.reach(false)));
    }

    #[test]
    fn a_card_names_what_is_dangerous() {
        let danger = json!({"what": ["deletes files"], "words": ["rm -rf"]});
        let card = QuestionCard::of(&record(json!({"why": "a", "danger": danger})), None);
        let danger = card.danger.expect("is dangerous");
        assert_eq!((danger.title.as_str(), danger.words), ("Deletes files", vec!["rm -rf".to_owned()]));
        assert_eq!(card.title, danger.title);
        assert!(QuestionCard::of(&record(json!({"why": "a"})), None).danger.is_none());
    }

    #[test]
    fn another_question_has_another_hash() {
        let (one, other) = (record(json!({"why": "a"})), record(json!({"why": "b"})));
        assert_eq!(shown_hash(&one), shown_hash(&one.clone()));
        assert_ne!(shown_hash(&one), shown_hash(&other));
        let mut answered = one.clone();
        answered.status = SuspensionStatus::Decided;
        assert_eq!(shown_hash(&one), shown_hash(&answered));
    }
}
