//! Everything that waits for a person, over all threads.

use rusqlite::Row;

use super::rows::{body, body_or_null, int, path_from, text, uint};
use super::{Store, StoreError};
use crate::contract::display::{call_summary, visible_line};
use crate::contract::ids::ThreadId;
use crate::contract::judgement::Risk;
use crate::contract::record::InboxRow;
use crate::contract::suspension::SuspendTicket;

/// Which questions to list; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxFilter {
    /// Of this thread.
    pub thread: Option<ThreadId>,
    /// About this tool.
    pub tool: Option<String>,
    /// Asked before this time, in Unix milliseconds.
    pub asked_before: Option<u64>,
}

/// What a list shows of a ticket.
pub(super) struct Shown {
    pub(super) action: String,
    pub(super) tool: String,
    pub(super) summary: String,
    pub(super) why: String,
    pub(super) risk: Option<Risk>,
}

impl Shown {
    pub(super) fn of(ticket: &SuspendTicket) -> Shown {
        let parameter = |key: &str| ticket.suspension.parameters.get(key).and_then(serde_json::Value::as_str);
        let why = parameter("why").unwrap_or(&ticket.suspension.message);
        Shown {
            action: ticket.suspension.action.clone(),
            tool: visible_line(&ticket.pending.name).into_owned(),
            summary: call_summary(&ticket.pending.name, &ticket.pending.arguments),
            why: visible_line(why).into_owned(),
            risk: parameter("risk").and_then(Risk::parse),
        }
    }
}

impl Store {
    /// The open questions that the filter leaves, oldest first. A row that cannot be read is left out and logged.
    pub async fn inbox(&self, filter: InboxFilter) -> Result<Vec<InboxRow>, StoreError> {
        self.read(move |conn| {
            let mut statement = conn.prepare_cached(
                "SELECT s.id, s.thread_id, t.title, t.cwd, s.run_id, r.parent_run_id, s.call_id, s.action, s.tool, \
                        s.summary, s.why, s.risk, s.created_at, s.expires_at, \
                        CASE WHEN s.tool IS NULL THEN s.ticket END \
                 FROM suspension s JOIN thread t ON t.id = s.thread_id JOIN run r ON r.id = s.run_id \
                 WHERE s.status = 'open' AND (?1 IS NULL OR s.thread_id = ?1) AND (?2 IS NULL OR s.created_at < ?2) \
                 ORDER BY s.n",
            )?;
            let mut rows = statement
                .query((filter.thread.as_ref().map(ThreadId::as_str), filter.asked_before.map(int)))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                if let Some(row) = row_of(row)?
                    && filter.tool.as_ref().is_none_or(|tool| *tool == row.tool)
                {
                    found.push(row);
                }
            }
            Ok(found)
        })
        .await
    }

    /// How many questions wait, over all threads.
    pub async fn waiting_count(&self) -> Result<u64, StoreError> {
        self.read(|conn| {
            let sql = "SELECT count(*) FROM suspension WHERE status = 'open'";
            Ok(uint(conn.prepare_cached(sql)?.query_row((), |row| row.get(0))?))
        })
        .await
    }
}

fn row_of(row: &Row<'_>) -> Result<Option<InboxRow>, StoreError> {
    let id = text(row, 0)?;
    let maybe = |at: usize| -> rusqlite::Result<Option<String>> {
        Ok(body_or_null(row, at)?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    let shown = match body_or_null(row, 14)? {
        None => Shown {
            action: maybe(7)?.unwrap_or_default(),
            tool: text(row, 8)?,
            summary: maybe(9)?.unwrap_or_default(),
            why: maybe(10)?.unwrap_or_default(),
            risk: maybe(11)?.as_deref().and_then(Risk::parse),
        },
        // An older version wrote it.
        Some(ticket) => match serde_json::from_slice::<SuspendTicket>(ticket) {
            Ok(ticket) => Shown::of(&ticket),
            Err(error) => {
                tracing::error!("question {id} cannot be read ({error})");
                return Ok(None);
            }
        },
    };
    let Shown { action, tool, summary, why, risk } = shown;
    Ok(Some(InboxRow {
        id: id.into(),
        thread_id: text(row, 1)?.into(),
        thread_title: text(row, 2)?,
        cwd: path_from(body(row, 3)?.to_vec()),
        run_id: text(row, 4)?.into(),
        parent_run_id: maybe(5)?.map(Into::into),
        call_id: text(row, 6)?.into(),
        action,
        tool,
        summary,
        why,
        risk,
        created_at: uint(row.get(12)?),
        expires_at: row.get::<_, Option<i64>>(13)?.map(uint),
    }))
}
