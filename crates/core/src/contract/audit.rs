//! The audit: proposals, verdicts, questions, decisions, starts and outcomes, in the order they were written.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{CallId, RunId, ThreadId};
use super::judgement::Ruling;
use super::mode::Mode;

/// The kind of an audit row. The members of the body are listed with each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// A call met the rules: `tool`, `arguments`, `cwd`, `answered`, `judgement` (whose `tried` is the SHA-256 of the
    /// list of rules and `matched` the places in it that matched).
    Judged,
    /// A question was opened: `suspension`, `tool`, `arguments`, `why`, `rule`, `expires_at`.
    Asked,
    /// It was answered: `suspension`, `action`, `reason`, `arguments` (when edited), `result`, `actor`, `delay_ms`.
    Decided,
    /// A tool was about to start: `attempt`, `tool`, `arguments`, `hash`, `class`, `pid`, `suspension`, `decision`.
    Began,
    /// It ended: `attempt`, `kind`, `outcome`, `summary` (the first line of the result).
    Ended,
    /// A question's time ran out: `suspension`.
    Expired,
    /// A question was closed without an answer: `suspension`.
    Superseded,
    /// A grant was given: the grant.
    Granted,
    /// A grant was revoked: `id`.
    Revoked,
    /// An answer was carried out that starts no tool, such as a no: `suspension`.
    Applied,
    /// A use of a grant was counted: `id`.
    Spent,
    /// A grant's time was seen to be over: `id`.
    Lapsed,
    /// A conversation was deleted, and its questions and executions with it: `questions`, `executions`,
    /// `actor`.
    Deleted,
    /// A hook ran its command: `name`, `origin`, `phase`, `exit`, `duration_ms`, `answer`.
    Hook,
    /// An agent or a model was defined, changed or (without a value) deleted over the server's API: `namespace`, `id`,
    /// `revision`, `replaces` (the revision before), `value`, `actor`.
    Configured,
    /// A word that this version does not know. It is never written.
    Other,
}

impl AuditKind {
    /// All kinds that are written.
    pub const ALL: [AuditKind; 15] = [
        AuditKind::Judged,
        AuditKind::Asked,
        AuditKind::Decided,
        AuditKind::Began,
        AuditKind::Ended,
        AuditKind::Expired,
        AuditKind::Superseded,
        AuditKind::Granted,
        AuditKind::Revoked,
        AuditKind::Applied,
        AuditKind::Spent,
        AuditKind::Lapsed,
        AuditKind::Deleted,
        AuditKind::Hook,
        AuditKind::Configured,
    ];

    /// The word in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditKind::Judged => "judged",
            AuditKind::Asked => "asked",
            AuditKind::Decided => "decided",
            AuditKind::Began => "began",
            AuditKind::Ended => "ended",
            AuditKind::Expired => "expired",
            AuditKind::Superseded => "superseded",
            AuditKind::Granted => "granted",
            AuditKind::Revoked => "revoked",
            AuditKind::Applied => "applied",
            AuditKind::Spent => "spent",
            AuditKind::Lapsed => "lapsed",
            AuditKind::Deleted => "deleted",
            AuditKind::Hook => "hook",
            AuditKind::Configured => "configured",
            AuditKind::Other => "other",
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> Option<AuditKind> {
        AuditKind::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// One row of the audit. It outlives its thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuditRow {
    /// The chain that it is in; empty for the only one of a store.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub chain: String,
    /// Its number in its chain; they count up from 1 without a gap.
    pub n: u64,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// The kind of the row.
    pub kind: AuditKind,
    /// The conversation, when it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The data of the row, depending on its kind.
    pub body: Value,
    /// SHA-256, hex, over the hash of the row before (empty for the first) and this row's columns.
    pub hash: String,
}

/// The kind of a fault in the audit, or of a mismatch between the audit and the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditFaultKind {
    /// Rows are not there.
    Missing,
    /// A row does not hold what its hash was made over.
    Changed,
    /// A row's hash was changed, but not its content.
    Hash,
    /// A row has another number than it was written with.
    Moved,
    /// A row is a copy of another one.
    Doubled,
    /// A row that was not written by aye.
    Added,
    /// The note of where the audit ends is missing or does not fit.
    Head,
    /// A list of rules is missing, changed or added.
    Rules,
    /// The audit and the tables disagree.
    Tables,
    /// A seal is missing or changed, or a chain does not have what a seal says of it.
    Seal,
}

/// One thing that is wrong in the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditFault {
    /// The kind of the fault.
    pub kind: AuditFaultKind,
    /// The chain that it is about; empty for the only one of a store.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub chain: String,
    /// The row's number, when it is about one; the first of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<i64>,
    /// The number of the last row, when it is about several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<i64>,
    /// The time when the row claims to have been written, in Unix milliseconds; for missing rows, that of the
    /// row before them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The description of the fault.
    pub what: String,
}

/// The result of verifying the whole audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditReport {
    pub rows: u64,
    /// The chains that the rows are in.
    pub chains: u64,
    /// What seals the chains; none where there is one chain.
    pub seals: u64,
    /// Lists of rules there are.
    pub rules: u64,
    /// The time when the first row claims to have been written, in Unix milliseconds.
    pub first_at: Option<u64>,
    /// When the last one is.
    pub last_at: Option<u64>,
    /// The faults in the order of the rows; the audit is intact if there are none.
    pub faults: Vec<AuditFault>,
    /// The number of further faults that are not listed.
    pub unlisted: u64,
}

impl AuditReport {
    /// Returns whether no faults were found.
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty() && self.unlisted == 0
    }
}

/// The user's decision on a call that needed approval. If one call got several, the last in this order
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PastAnswer {
    /// The question expired before it was answered.
    Expired,
    Allowed,
    /// Yes, with other arguments.
    Modified,
    Declined,
}

/// A call as it first met the rules.
#[derive(Clone, Debug, PartialEq)]
pub struct PastCall {
    /// The number of the row that records the call.
    pub n: u64,
    /// When, in Unix milliseconds.
    pub at: u64,
    pub thread_id: ThreadId,
    pub run_id: RunId,
    pub call_id: CallId,
    pub tool: String,
    /// Its arguments as JSON.
    pub arguments: String,
    /// The folder it was to run in.
    pub cwd: String,
    pub ruling: Ruling,
    /// The mode that it was given in.
    pub mode: Mode,
}

/// One thing that the past says.
#[derive(Clone, Debug, PartialEq)]
pub enum PastRow {
    /// A call; they are counted from 0.
    Call(Box<PastCall>),
    /// An answer to the call of this number.
    Answer(usize, PastAnswer),
}
