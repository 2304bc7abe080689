//! Questions of any conversation, the rules that judge calls, and what was granted.

use std::path::PathBuf;

use serde_json::Value;

use super::super::event_loop::Performer;
use super::{HostFuture, words};
use aye_core::contract::grant::GrantPreview;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::judgement::Ruling;
use aye_core::contract::record::{DecideOutcome, InboxRow, SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::Answer;
use aye_core::contract::tool::FilePreview;

/// A question of any conversation, with what a card needs beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedQuestion {
    /// The current state of the question.
    pub record: SuspensionRecord,
    /// The title of its conversation.
    pub title: String,
    /// The root of the project that it was asked in.
    pub project: PathBuf,
    /// The agent that asks, when another one set it to work.
    pub child: Option<String>,
}

/// A permission rule in force.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleRow {
    /// The pattern that it matches.
    pub pattern: String,
    /// `allow`, `ask` or `deny`.
    pub behavior: String,
    /// The origin of the skill.
    pub origin: String,
}

/// A grant of the ledger, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantRow {
    pub id: String,
    /// The pattern that it allows.
    pub pattern: String,
    /// The scope of the grant.
    pub scope: String,
    /// `in force`, or why it is not.
    pub state: String,
    /// Whether it can be revoked.
    pub holds: bool,
    pub end: String,
    /// The number of times it was used.
    pub uses: String,
    /// When it was given and by whom.
    pub given: String,
    /// The question it was given at.
    pub question: Option<String>,
}

/// The review of an edited call by the rules and the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    /// The verdict of the rules.
    pub ruling: Ruling,
    /// The same in words.
    pub words: String,
    /// The changes that it would make to files.
    pub files: Vec<FilePreview>,
    /// The payload sent with the approval, so that it counts for the files as they were shown.
    pub payload: Value,
}

/// Questions and their answers.
pub trait QuestionHost: Send + Sync {
    /// Returns a question, whatever its status.
    fn question<'a>(&'a self, id: &'a SuspensionId) -> HostFuture<'a, Option<SuspensionRecord>>;

    /// A question of any conversation, with what a card of it needs.
    fn opened_question<'a>(&'a self, id: &'a SuspensionId) -> HostFuture<'a, Option<OpenedQuestion>>;

    /// Stores an answer, and the rule that is granted with it; the run then continues, and its events arrive.
    fn decide<'a>(&'a self, id: &'a SuspensionId, answer: Answer) -> HostFuture<'a, DecideOutcome>;

    /// Returns the review of an edited call by the rules and the tool. It decides nothing.
    fn review<'a>(&'a self, suspension: &'a SuspensionId, arguments: &'a Value) -> HostFuture<'a, Review>;

    /// Reports that a question of a conversation has expired; its run is resumed.
    fn expired(&self, thread: &ThreadId);

    /// Returns the pending questions of all conversations, oldest first.
    fn inbox(&self) -> HostFuture<'_, Vec<InboxRow>>;

    /// Returns the number of pending questions in conversations other than this one.
    fn waiting_elsewhere<'a>(&'a self, here: Option<&'a ThreadId>) -> HostFuture<'a, u64>;

    /// Returns what a pattern would have allowed of the past calls in this project, and, if it cannot be
    /// granted at the question, why not.
    fn preview_grant<'a>(
        &'a self,
        suspension: &'a SuspensionId,
        pattern: &'a str,
    ) -> HostFuture<'a, GrantPreview>;

    /// The ledger of grants, those that hold first.
    fn grants(&self) -> HostFuture<'_, Vec<GrantRow>>;

    /// Revokes a grant, everywhere at once. Returns `false` if it was already revoked.
    fn revoke_grant<'a>(&'a self, id: &'a str) -> HostFuture<'a, bool>;

    /// Permission rules in force.
    fn permissions(&self) -> Vec<RuleRow>;
}

/// Something is to be done with a question, or with what is granted.
#[derive(Clone, Debug, PartialEq)]
pub enum QuestionCmd {
    /// Request the current state of a question.
    WhoAnswered(SuspensionId),
    /// Look at a question of any conversation.
    Open(SuspensionId),
    Decide(SuspensionId, Box<Answer>),
    /// Ask what the rules and the tool say of edited arguments.
    Review(SuspensionId, Value),
    /// A question of the conversation has ended unanswered: see to it.
    Expire(ThreadId),
    /// Ask for what waits, over all conversations.
    Inbox,
    /// Count what waits in other conversations than this one.
    CountElsewhere(Option<ThreadId>),
    /// Find out what a pattern would have matched.
    PreviewGrant(SuspensionId, String),
    /// Ask for the ledger of grants.
    Grants,
    /// Take a grant back.
    RevokeGrant(String),
    /// Ask for the list of rules.
    Rules,
}

/// Something happened to a question, or to what is granted. Errors are sentences for the person.
#[derive(Clone, Debug)]
pub enum QuestionMsg {
    /// A question that is not open any more.
    Closed(Box<SuspensionRecord>),
    /// A question of any conversation as it stands now.
    Opened(SuspensionId, Result<Option<Box<OpenedQuestion>>, String>),
    /// An answer was stored, or not.
    Decided(SuspensionId, Result<DecideOutcome, String>),
    /// The review of these edited arguments of a question by the rules and the tool.
    Reviewed(SuspensionId, Value, Result<Review, String>),
    /// Something may wait, or wait no more, in some conversation.
    InboxChanged,
    /// The pending questions of all conversations.
    Inbox(Result<Vec<InboxRow>, String>),
    /// The number of pending questions in other conversations.
    Elsewhere(u64),
    /// The matches that a pattern would have had.
    GrantPreviewed(SuspensionId, String, Result<GrantPreview, String>),
    /// The ledger of grants.
    Grants(Result<Vec<GrantRow>, String>),
    /// A grant was revoked; `false`: it was revoked before.
    Revoked(String, Result<bool, String>),
    /// The list of rules.
    Rules(Vec<RuleRow>),
}

impl QuestionCmd {
    pub(crate) fn perform(self, performer: &mut Performer) {
        let (host, send) = performer.both();
        match self {
            Self::WhoAnswered(id) => performer.spawn(async move {
                match host.question(&id).await {
                    Ok(Some(record)) if record.status != SuspensionStatus::Open => {
                        send.answer(QuestionMsg::Closed(Box::new(record)));
                    }
                    Ok(_) => {}
                    Err(error) => send.failed(&error),
                }
            }),
            Self::Open(id) => performer.spawn(async move {
                let found = host.opened_question(&id).await.map(|found| found.map(Box::new));
                send.answer(QuestionMsg::Opened(id, words(found)));
            }),
            Self::Decide(id, answer) => performer.spawn(async move {
                let outcome = words(host.decide(&id, *answer).await);
                send.answer(QuestionMsg::Decided(id, outcome));
            }),
            Self::Review(id, arguments) => performer.spawn(async move {
                let review = words(host.review(&id, &arguments).await);
                send.answer(QuestionMsg::Reviewed(id, arguments, review));
            }),
            Self::Expire(thread) => host.expired(&thread),
            Self::Inbox => performer.spawn(async move {
                send.answer(QuestionMsg::Inbox(words(host.inbox().await)));
            }),
            Self::CountElsewhere(here) => performer.spawn(async move {
                match host.waiting_elsewhere(here.as_ref()).await {
                    Ok(count) => send.answer(QuestionMsg::Elsewhere(count)),
                    Err(error) => tracing::warn!(%error, "pending questions elsewhere could not be counted"),
                }
            }),
            Self::PreviewGrant(id, pattern) => performer.spawn(async move {
                let preview = words(host.preview_grant(&id, &pattern).await);
                send.answer(QuestionMsg::GrantPreviewed(id, pattern, preview));
            }),
            Self::Grants => performer.spawn(async move {
                send.answer(QuestionMsg::Grants(words(host.grants().await)));
            }),
            Self::RevokeGrant(id) => performer.spawn(async move {
                let revoked = words(host.revoke_grant(&id).await);
                send.answer(QuestionMsg::Revoked(id, revoked));
            }),
            Self::Rules => send.answer(QuestionMsg::Rules(host.permissions())),
        }
    }
}
