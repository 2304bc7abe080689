//! The audit: what was proposed, judged, asked, decided, begun and ended, in the order it was written.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{CallId, RunId, ThreadId};

/// What a row of the audit tells. The bodies are given beside each kind, field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// A grant was taken back: `id`.
    Revoked,
}

impl AuditKind {
    /// All kinds.
    pub const ALL: [AuditKind; 9] = [
        AuditKind::Judged,
        AuditKind::Asked,
        AuditKind::Decided,
        AuditKind::Began,
        AuditKind::Ended,
        AuditKind::Expired,
        AuditKind::Superseded,
        AuditKind::Granted,
        AuditKind::Revoked,
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
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> Option<AuditKind> {
        AuditKind::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// One row of the audit. It outlives its thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Its number; they count up from 1 without a gap.
    pub n: u64,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// What it tells.
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
    /// What there is to tell, by kind.
    pub body: Value,
    /// SHA-256, hex, over the hash of the row before (empty for the first) and this row's columns.
    pub hash: String,
}
