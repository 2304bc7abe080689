//! The path of an answer to the stored decision, for all front ends.

#[cfg(test)]
mod tests;

use aye_core::contract::digest::sha256_hex;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::record::{DecideOutcome, Decision, GrantRecord, SuspensionRecord};
use aye_core::contract::storage::ThreadRunStore;
use aye_core::contract::suspension::{Actor, Answer, ToolCallResume};
use aye_runtime::{AgentRuntime, DecideError, check_payload};
use serde_json::json;

/// What an answer is meant as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A yes to what was shown: a form is accepted as it stands, and a question that needs data refuses it.
    Approval,
    /// Values: refused where only a yes or no is asked for, because it would be a yes that nobody intended.
    Values,
    /// What it says: a no, other arguments, or whatever the question's schema accepts.
    Literal,
}

/// An answer on its way to its question.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The answer. Without a time, it is from the moment at which it is stored.
    pub resume: ToolCallResume,
    /// What it is meant as.
    pub meaning: Meaning,
    /// The [hash](shown_hash) of what the user saw, if the answer holds only for that.
    pub shown: Option<String>,
    /// The rule that is granted with it.
    pub grant: Option<GrantRecord>,
}

impl Reply {
    fn new(resume: ToolCallResume, meaning: Meaning) -> Self {
        Self { resume, meaning, shown: None, grant: None }
    }

    /// A yes to what was shown.
    pub fn approval(answer: Answer) -> Self {
        Self::new(answer.resume(0), Meaning::Approval)
    }

    pub fn values(answer: Answer) -> Self {
        Self::new(answer.resume(0), Meaning::Values)
    }

    /// An answer that is taken as it is.
    pub fn literal(resume: ToolCallResume) -> Self {
        Self::new(resume, Meaning::Literal)
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::literal(answer.resume(0))
    }
}

/// Where an answer is stored.
#[derive(Clone, Copy)]
pub enum AnswerPlace<'a> {
    /// In the store of a runtime, which passes it to the driver that is active here.
    Runtime(&'a AgentRuntime),
    /// In a store; the process that drives the run learns of it from there. Edited arguments were checked by the caller.
    Store {
        store: &'a dyn ThreadRunStore,
        /// The time in Unix milliseconds.
        now_ms: u64,
    },
}

/// What became of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAnswer {
    /// What the store did with it.
    pub outcome: DecideOutcome,
    /// The conversation whose run resumes with the answer: for a question of a subagent, the one that waits for it.
    pub wakes: Option<ThreadId>,
}

impl StoredAnswer {
    /// Returns the question as it is now, if it exists.
    pub fn record(&self) -> Option<&SuspensionRecord> {
        match &self.outcome {
            DecideOutcome::Accepted(record)
            | DecideOutcome::Repeated(record)
            | DecideOutcome::AlreadyDecided(record)
            | DecideOutcome::Closed(record)
            | DecideOutcome::Expired(record) => Some(record),
            DecideOutcome::NotFound => None,
        }
    }
}

/// Why an answer was not stored. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The question needs data, not just approval.
    #[error("the question needs data, not just approval")]
    NeedsData,
    /// The question takes no data.
    #[error("the question takes no data: approve or deny it")]
    TakesNoData,
    /// The question is no longer as it was shown.
    #[error("the question has changed since it was shown; read it again")]
    Changed,
    /// It does not fit the question, or the store failed.
    #[error(transparent)]
    Refused(#[from] DecideError),
}

/// Returns the hash of what is asked: another call, another reason or other files have another hash.
pub fn shown_hash(question: &SuspensionRecord) -> String {
    sha256_hex(json!([question.id, question.ticket]).to_string())
}

/// Returns an answer as its question takes it.
///
/// # Errors
/// [`AnswerError`].
pub fn check(question: &SuspensionRecord, reply: &Reply) -> Result<ToolCallResume, AnswerError> {
    let (ticket, given) = (&question.ticket, &reply.resume);
    if reply.shown.as_ref().is_some_and(|shown| *shown != shown_hash(question)) {
        return Err(AnswerError::Changed);
    }
    let mut resume = given.clone();
    match reply.meaning {
        // Edited arguments replace the payload.
        Meaning::Approval if given.result.is_null() && given.arguments.is_none() => {
            resume.result = ticket.approval().ok_or(AnswerError::NeedsData)?;
        }
        Meaning::Values if !ticket.takes_data() => return Err(AnswerError::TakesNoData),
        Meaning::Approval | Meaning::Values | Meaning::Literal => {}
    }
    check_payload(question, &resume)?;
    Ok(resume)
}

/// Stores the answer of an actor to a question. The caller then resumes the run of [`StoredAnswer::wakes`] if it drives runs.
///
/// # Errors
/// [`AnswerError`]: nothing was stored.
pub async fn answer(
    place: AnswerPlace<'_>,
    id: &SuspensionId,
    reply: Reply,
    actor: Actor,
) -> Result<StoredAnswer, AnswerError> {
    let store = match place {
        AnswerPlace::Runtime(runtime) => &**runtime.store(),
        AnswerPlace::Store { store, .. } => store,
    };
    let Some(question) = store.suspension(id).await.map_err(DecideError::Store)? else {
        return Ok(StoredAnswer { outcome: DecideOutcome::NotFound, wakes: None });
    };
    let resume = check(&question, &reply)?;
    let outcome = match place {
        AnswerPlace::Runtime(runtime) => {
            runtime.decide_about(&question, Decision { resume, actor, grant: reply.grant }).await?
        }
        AnswerPlace::Store { now_ms, .. } => {
            let updated_at = if resume.updated_at == 0 { now_ms } else { resume.updated_at };
            let resume = ToolCallResume { updated_at, ..resume };
            let decision = Decision { resume, actor, grant: reply.grant };
            store.decide(id, decision, now_ms).await.map_err(DecideError::Store)?
        }
    };
    let wakes = match &outcome {
        // The first decision wins, and the run resumes with it.
        DecideOutcome::Accepted(record)
        | DecideOutcome::Repeated(record)
        | DecideOutcome::AlreadyDecided(record)
        | DecideOutcome::Expired(record) => {
            // The answer is stored, whatever this read says.
            let top = store.driven_with(&record.thread_id).await;
            Some(top.unwrap_or_else(|_| record.thread_id.clone()))
        }
        DecideOutcome::Closed(_) | DecideOutcome::NotFound => None,
    };
    Ok(StoredAnswer { outcome, wakes })
}
