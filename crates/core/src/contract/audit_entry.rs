//! The audit entries of each transaction. The words are the same in every store.

use serde_json::{Value, json};

use super::audit::{AuditKind, AuditRow};
use super::digest::sha256_hex;
use super::hook::HookRan;
use super::ids::{CallId, RunId, SuspensionId, ThreadId};
use super::judgement::JudgedCall;
use super::record::{
    Decision, ExecutionStart, Fence, GrantRecord, OutcomeRecord, RunRecord, SuspensionRecord,
};
use super::suspension::Actor;

/// Characters of a result that its row keeps.
const SUMMARY: usize = 200;

/// A row of the audit before it has a number and a hash.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// When, in Unix milliseconds.
    pub at: u64,
    /// The kind of the entry.
    pub kind: AuditKind,
    /// The conversation, when it is about one.
    pub thread_id: Option<ThreadId>,
    pub run_id: Option<RunId>,
    pub call_id: Option<CallId>,
    /// The data of the entry, depending on its kind.
    pub body: Value,
}

/// The member of a body that says what a client calls the request.
const CORRELATION_ID: &str = "correlation_id";

impl AuditEntry {
    fn of_call(at: u64, kind: AuditKind, run: &RunRecord, call: &CallId, mut body: Value) -> Self {
        if let Some(id) = &run.correlation_id {
            body[CORRELATION_ID] = Value::from(id.as_str());
        }
        let (thread_id, run_id) = (Some(run.thread_id.clone()), Some(run.id.clone()));
        Self { at, kind, thread_id, run_id, call_id: Some(call.clone()), body }
    }

    fn of_grant(at: u64, kind: AuditKind, body: Value) -> Self {
        Self { at, kind, thread_id: None, run_id: None, call_id: None, body }
    }

    /// Returns the entry for a verdict about a call, the JSON of the rules that were tried, and the hash that
    /// refers to them: a store keeps the rules once for all calls.
    ///
    /// # Errors
    /// If the rules cannot be written as JSON.
    pub fn judged(run: &RunRecord, call: &JudgedCall) -> serde_json::Result<(Self, String, String)> {
        let mut judgement = call.judgement.clone();
        let mut tried = std::mem::take(&mut judgement.tried);
        let matched: Vec<usize> = tried
            .iter_mut()
            .enumerate()
            .filter_map(|(at, rule)| std::mem::take(&mut rule.matched).then_some(at))
            .collect();
        let rules = serde_json::to_string(&tried)?;
        let hash = sha256_hex(&rules);
        let mut shown = serde_json::to_value(&judgement).unwrap_or(Value::Null);
        shown["tried"] = Value::from(hash.clone());
        shown["matched"] = json!(matched);
        let body = json!({
            "tool": call.tool,
            "arguments": call.arguments,
            "cwd": call.cwd,
            "answered": call.answered,
            "judgement": shown,
        });
        Ok((Self::of_call(call.at, AuditKind::Judged, run, &call.call_id, body), hash, rules))
    }

    /// A hook ran its command.
    pub fn hook(run: &RunRecord, ran: &HookRan) -> Self {
        let body = json!({
            "name": ran.name,
            "origin": ran.origin,
            "phase": ran.phase,
            "exit": ran.exit,
            "duration_ms": ran.duration_ms,
            "answer": ran.answer,
        });
        let (thread_id, run_id) = (Some(run.thread_id.clone()), Some(run.id.clone()));
        Self { at: ran.at, kind: AuditKind::Hook, thread_id, run_id, call_id: ran.call_id.clone(), body }
    }

    /// A question was asked.
    pub fn asked(run: &RunRecord, question: &SuspensionRecord) -> Self {
        let (suspension, pending) = (&question.ticket.suspension, &question.ticket.pending);
        let body = json!({
            "suspension": question.id,
            "action": suspension.action,
            "tool": pending.name,
            "arguments": pending.arguments,
            "why": suspension.parameters.get("why"),
            "rule": suspension.parameters.get("rule"),
            "expires_at": suspension.expires_at,
        });
        Self::of_call(question.created_at, AuditKind::Asked, run, &question.call_id, body)
    }

    /// A question was answered.
    pub fn decided(question: &SuspensionRecord, decision: &Decision, now_ms: u64) -> Self {
        let resume = &decision.resume;
        let mut body = json!({
            "suspension": question.id,
            "decision": resume.decision_id,
            "action": resume.action,
            "reason": resume.reason,
            "result": resume.result,
            "arguments": resume.arguments,
            "actor": decision.actor,
            "delay_ms": now_ms.saturating_sub(question.created_at),
        });
        if let Some(profile) = resume.profile {
            body["profile"] = json!(profile);
        }
        if let Some(id) = question.correlation_id() {
            body[CORRELATION_ID] = Value::from(id);
        }
        Self {
            at: now_ms,
            kind: AuditKind::Decided,
            thread_id: Some(question.thread_id.clone()),
            run_id: Some(question.run_id.clone()),
            call_id: Some(question.call_id.clone()),
            body,
        }
    }

    /// A question ended: expired, superseded or applied.
    pub fn closed(
        at: u64,
        kind: AuditKind,
        (thread, run, call): (&ThreadId, &RunId, &CallId),
        suspension: &SuspensionId,
    ) -> Self {
        Self {
            at,
            kind,
            thread_id: Some(thread.clone()),
            run_id: Some(run.clone()),
            call_id: Some(call.clone()),
            body: json!({ "suspension": suspension }),
        }
    }

    /// A thread was deleted, with this number of questions and executions.
    pub fn deleted(at: u64, thread: &ThreadId, questions: u64, executions: u64, actor: &Actor) -> Self {
        let body = json!({ "questions": questions, "executions": executions, "actor": actor });
        let (run_id, call_id) = (None, None);
        Self { at, kind: AuditKind::Deleted, thread_id: Some(thread.clone()), run_id, call_id, body }
    }

    /// A tool is about to start.
    pub fn began(begin: &ExecutionStart) -> Self {
        let ExecutionStart { fence, run, intent, spends, .. } = begin;
        let body = json!({
            "attempt": intent.id.attempt,
            "tool": intent.tool,
            "arguments": intent.arguments,
            "hash": intent.hash,
            "class": intent.class,
            "pid": intent.pid,
            "epoch": fence.epoch,
            "suspension": spends.as_ref().map(|(id, _)| id),
            "decision": spends.as_ref().map(|(_, id)| id),
        });
        Self::of_call(intent.started_at, AuditKind::Began, run, &intent.id.call_id, body)
    }

    pub fn ended(fence: &Fence, run: &RunRecord, outcome: &OutcomeRecord) -> Self {
        let line = outcome.result.message.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
        let body = json!({
            "attempt": outcome.id.attempt,
            "epoch": fence.epoch,
            "kind": outcome.kind,
            "outcome": outcome.outcome,
            "summary": line.chars().take(SUMMARY).collect::<String>(),
        });
        Self::of_call(outcome.ended_at, AuditKind::Ended, run, &outcome.id.call_id, body)
    }

    /// A grant was given.
    pub fn granted(grant: &GrantRecord) -> Self {
        let body = serde_json::to_value(grant).unwrap_or_default();
        Self::of_grant(grant.created_at, AuditKind::Granted, body)
    }

    /// A grant was revoked, a use of it was counted, or its time was seen to be over.
    pub fn grant_changed(at: u64, kind: AuditKind, id: &str) -> Self {
        Self::of_grant(at, kind, json!({ "id": id }))
    }

    /// Returns the row with this number, after the row with this hash; the hash is empty for the first row.
    ///
    /// # Errors
    /// If the body cannot be written as JSON.
    pub fn chained(self, n: u64, previous: &str) -> serde_json::Result<AuditRow> {
        let Self { at, kind, thread_id, run_id, call_id, body } = self;
        let covered = Covered {
            n: i64::try_from(n).unwrap_or(i64::MAX),
            at: i64::try_from(at).unwrap_or(i64::MAX),
            kind: kind.as_str(),
            about: [
                thread_id.as_ref().map(ThreadId::as_str),
                run_id.as_ref().map(RunId::as_str),
                call_id.as_ref().map(CallId::as_str),
            ],
            body: &serde_json::to_string(&body)?,
        };
        let hash = covered.hash(previous)?;
        Ok(AuditRow { chain: String::new(), n, at, kind, thread_id, run_id, call_id, body, hash })
    }
}

/// The columns that a row's hash covers, as JSON, so that no two rows have the same text.
pub struct Covered<'a> {
    pub n: i64,
    pub at: i64,
    /// The word of its kind.
    pub kind: &'a str,
    /// Conversation, run and call.
    pub about: [Option<&'a str>; 3],
    /// The text of its body, as it is stored.
    pub body: &'a str,
}

impl Covered<'_> {
    /// The hash, when the row before has this one.
    ///
    /// # Errors
    /// Never with these types.
    pub fn hash(&self, previous: &str) -> serde_json::Result<String> {
        let [thread, run, call] = self.about;
        let whole = (previous, self.n, self.at, self.kind, thread, run, call, self.body);
        Ok(sha256_hex(serde_json::to_string(&whole)?))
    }
}
