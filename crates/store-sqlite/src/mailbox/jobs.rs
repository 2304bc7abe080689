//! Jobs as rows, and queries for them.

use rusqlite::{Connection, Params, Row};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::rows::{all, body, decode, first, int, text, uint};
use super::super::{JobFilter, JobLookup, SqlFailure, StoreError, rows};
use super::Mailbox;
use aye_core::contract::ids::{JobId, RunId, ThreadId};
use aye_core::contract::mailbox::{MailboxJob, MailboxJobOrigin, MailboxJobStatus};
use aye_core::contract::message::Message;

/// The columns that [`job_of`] reads.
const COLUMNS: &str = "n, job_id, mailbox_id, status, priority, available_at, created_at, updated_at, generation, \
                       dedupe_key, attempt_count, max_attempts, last_error, run_id, claim_token, claimed_by, \
                       lease_until, body";

/// The parts of a job that never change.
#[derive(Serialize, Deserialize)]
pub(super) struct Body {
    agent_id: String,
    messages: Vec<Message>,
    origin: MailboxJobOrigin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sender_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_extras: Option<Value>,
}

impl Body {
    pub(super) fn of(job: &MailboxJob) -> Body {
        Body {
            agent_id: job.agent_id.clone(),
            messages: job.messages.clone(),
            origin: job.origin,
            sender_id: job.sender_id.clone(),
            parent_run_id: job.parent_run_id.clone(),
            request_extras: job.request_extras.clone(),
        }
    }
}

impl Mailbox {
    /// Returns the job, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its row is unreadable.
    pub async fn load_job(&self, job: &JobId) -> Result<Option<MailboxJob>, StoreError> {
        let id = job.clone();
        self.store.read(move |conn| by_id(conn, &id)).await
    }

    /// Lists jobs in the order in which they are served, followed by the closed ones, last one first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a row is unreadable.
    pub async fn list_jobs(&self, filter: JobFilter) -> Result<Vec<MailboxJob>, StoreError> {
        let limit = filter.limit.map_or(-1, |limit| int(limit as u64));
        self.store.read(move |conn| next_jobs(conn, &filter, (limit, 0))).await
    }

    /// Counts the jobs that a filter leaves, whatever its limit is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn count_jobs(&self, filter: JobFilter) -> Result<u64, StoreError> {
        self.store
            .read(move |conn| {
                let sql = format!("SELECT count(*) FROM mailbox WHERE {FILTER}");
                let mut statement = conn.prepare_cached(&sql)?;
                Ok(uint(statement.query_row(parameters(&filter), |row| row.get(0))?))
            })
            .await
    }

    /// Finds the job with this number or with an id that starts with `words`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its row is unreadable.
    pub async fn find_job(&self, words: &str) -> Result<JobLookup, StoreError> {
        let words = words.to_owned();
        self.store
            .read(move |conn| {
                let number = words.parse::<u64>().ok().map(int);
                if let Some(job) = one(conn, "SELECT {} FROM mailbox WHERE n = ?1", (number,))? {
                    return Ok(JobLookup::One(Box::new(job)));
                }
                if words.is_empty() {
                    return Ok(JobLookup::None);
                }
                let sql =
                    "SELECT {} FROM mailbox WHERE substr(job_id, 1, length(?1)) = ?1 ORDER BY n LIMIT 20";
                let mut found = several(conn, sql, (&words,))?;
                Ok(match found.len() {
                    0 => JobLookup::None,
                    1 => JobLookup::One(Box::new(found.remove(0))),
                    _ => JobLookup::Many(found.into_iter().map(|job| job.job_id).collect()),
                })
            })
            .await
    }
}

/// The order in which unfinished jobs are served; finished ones follow, newest first.
const NEXT_FIRST: &str = "status NOT IN ('queued', 'claimed'), \
                          CASE WHEN status IN ('queued', 'claimed') THEN 0 ELSE -updated_at END, \
                          priority, available_at, created_at, n";

/// A part of them in the order of their numbers: its limit and its offset.
pub(crate) fn jobs_from(
    conn: &Connection,
    filter: &JobFilter,
    part: (i64, i64),
) -> Result<Vec<MailboxJob>, SqlFailure> {
    listed(conn, filter, "n", part)
}

/// A part of them in the order in which they are served: its limit and its offset.
pub(crate) fn next_jobs(
    conn: &Connection,
    filter: &JobFilter,
    part: (i64, i64),
) -> Result<Vec<MailboxJob>, SqlFailure> {
    listed(conn, filter, NEXT_FIRST, part)
}

fn listed(
    conn: &Connection,
    filter: &JobFilter,
    order: &str,
    (limit, offset): (i64, i64),
) -> Result<Vec<MailboxJob>, SqlFailure> {
    let sql = format!("SELECT {{}} FROM mailbox WHERE {FILTER} ORDER BY {order} LIMIT ?3 OFFSET ?4");
    let (mailbox, words) = parameters(filter);
    readable(conn, &sql, (mailbox, words, limit, offset))
}

const FILTER: &str = "(?1 IS NULL OR mailbox_id = ?1) AND (?2 = '' OR instr(?2, ' ' || status || ' '))";

/// The parameters of [`FILTER`].
fn parameters(filter: &JobFilter) -> (Option<&str>, String) {
    let words: Vec<&str> = filter.statuses.iter().map(|status| status.as_str()).collect();
    let words = if words.is_empty() { String::new() } else { format!(" {} ", words.join(" ")) };
    (filter.mailbox.as_ref().map(ThreadId::as_str), words)
}

pub(super) fn by_id(conn: &Connection, id: &JobId) -> Result<Option<MailboxJob>, SqlFailure> {
    one(conn, "SELECT {} FROM mailbox WHERE job_id = ?1", (id.as_str(),))
}

pub(super) fn claimed_of(conn: &Connection, mailbox: &ThreadId) -> Result<Option<MailboxJob>, SqlFailure> {
    one(conn, "SELECT {} FROM mailbox WHERE mailbox_id = ?1 AND status = 'claimed'", (mailbox.as_str(),))
}

/// The job that this token claims.
pub(super) fn take_claim(conn: &Connection, id: &JobId, token: &str) -> Result<MailboxJob, SqlFailure> {
    let job = by_id(conn, id)?.ok_or_else(|| StoreError::NoJob(id.clone()))?;
    if job.status != MailboxJobStatus::Claimed || job.claim_token.as_deref() != Some(token) {
        return Err(StoreError::NotClaimed(id.clone()).into());
    }
    Ok(job)
}

/// Reads one job; `{}` in the SQL is replaced by the columns.
pub(super) fn one(
    conn: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Option<MailboxJob>, SqlFailure> {
    first(conn, &sql.replace("{}", COLUMNS), params, job_of)
}

/// The jobs that can be read: one that was damaged must not keep the others from being served. It is logged.
pub(super) fn readable(
    conn: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Vec<MailboxJob>, SqlFailure> {
    let sql = sql.replace("{}", COLUMNS);
    Ok(all(conn, &sql, params, |row| rows::readable(job_of(row)))?.into_iter().flatten().collect())
}

/// Reads jobs; `{}` in the SQL is replaced by the columns.
pub(super) fn several(
    conn: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<Vec<MailboxJob>, SqlFailure> {
    all(conn, &sql.replace("{}", COLUMNS), params, job_of)
}

fn job_of(row: &Row<'_>) -> Result<MailboxJob, SqlFailure> {
    let mailbox_id = ThreadId::from(text(row, 2)?);
    let job_id = JobId::from(text(row, 1)?);
    let word = text(row, 3)?;
    let status = MailboxJobStatus::ALL.into_iter().find(|status| status.as_str() == word);
    let status = status.ok_or_else(|| StoreError::Damaged {
        thread: mailbox_id.clone(),
        why: format!("job {job_id} has the invalid state `{word}`"),
    })?;
    let Body { agent_id, messages, origin, sender_id, parent_run_id, request_extras } =
        decode(&mailbox_id, &format!("job {job_id}"), body(row, 17)?)?;
    Ok(MailboxJob {
        job_id,
        mailbox_id,
        sequence: uint(row.get(0)?),
        agent_id,
        messages,
        origin,
        sender_id,
        parent_run_id,
        request_extras,
        priority: row.get(4)?,
        dedupe_key: row.get(9)?,
        generation: uint(row.get(8)?),
        status,
        available_at: uint(row.get(5)?),
        attempt_count: row.get(10)?,
        max_attempts: row.get(11)?,
        last_error: row.get(12)?,
        run_id: row.get::<_, Option<String>>(13)?.map(RunId::from),
        claim_token: row.get(14)?,
        claimed_by: row.get(15)?,
        lease_until: row.get::<_, Option<i64>>(16)?.map(uint),
        created_at: uint(row.get(6)?),
        updated_at: uint(row.get(7)?),
    })
}
