//! The pending questions of all threads.

use rusqlite::{Connection, Row};

use super::rows::{body, body_or_null, int, path_from, text, uint};
use super::{InboxFilter, SqlFailure, Store, StoreError};
use aye_core::contract::display::{call_summary, visible_line};
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::judgement::Risk;
use aye_core::contract::record::{InboxChild, InboxRow};
use aye_core::contract::suspension::{ACTION_CHILD_RUN, SuspendTicket};

/// The parts of a ticket that a list shows.
pub(super) struct TicketView {
    pub(super) action: String,
    pub(super) tool: String,
    pub(super) summary: String,
    pub(super) why: String,
    pub(super) risk: Option<Risk>,
}

impl TicketView {
    pub(super) fn of(ticket: &SuspendTicket) -> TicketView {
        TicketView {
            action: ticket.suspension.action.clone(),
            tool: visible_line(&ticket.pending.name).into_owned(),
            summary: call_summary(&ticket.pending.name, &ticket.pending.arguments),
            why: visible_line(&ticket.suspension.why()).into_owned(),
            risk: ticket.suspension.risk(),
        }
    }
}

/// The pending questions, oldest first. The indices are named because SQLite would otherwise sort all of them for a page,
/// and read the whole row of each run to find out that it has no parent.
pub(super) const INBOX: &str = "SELECT s.id, s.thread_id, t.title, t.cwd, s.run_id, r.parent_run_id, s.call_id, s.action, s.tool, \
            s.summary, s.why, s.risk, s.created_at, s.expires_at, \
            CASE WHEN s.tool IS NULL THEN s.ticket END, c.agent, c.root_thread \
     FROM suspension s INDEXED BY suspension_waiting LEFT JOIN run r INDEXED BY run_of_parent \
          ON r.id = s.run_id AND r.parent_run_id IS NOT NULL \
          LEFT JOIN child c ON c.thread_id = s.thread_id JOIN thread t ON t.id = coalesce(c.root_thread, s.thread_id) \
     WHERE s.status = 'open' AND s.action IS NOT ?3 \
       AND (?1 IS NULL OR s.thread_id = ?1 OR c.root_thread = ?1) \
       AND (?2 IS NULL OR s.created_at < ?2) \
       AND (?4 IS NULL OR s.expires_at IS NULL OR s.expires_at > ?4) \
     ORDER BY s.n";

impl Store {
    /// The open questions that the filter leaves, oldest first. A row that cannot be read is left out and logged.
    pub async fn inbox(&self, filter: InboxFilter) -> Result<Vec<InboxRow>, StoreError> {
        self.read(move |conn| {
            let mut statement = conn.prepare_cached(INBOX)?;
            let thread = filter.thread.as_ref().map(ThreadId::as_str);
            let (asked, valid) = (filter.asked_before.map(int), filter.valid_at.map(int));
            let mut rows = statement.query((thread, asked, ACTION_CHILD_RUN, valid))?;
            let (mut found, mut skip) = (Vec::new(), filter.offset);
            while filter.limit.is_none_or(|limit| found.len() < limit)
                && let Some(row) = rows.next()?
            {
                let Some(row) = row_of(row)? else { continue };
                if filter.tool.as_ref().is_some_and(|tool| !tool.eq_ignore_ascii_case(&row.tool)) {
                    continue;
                }
                if skip > 0 {
                    skip -= 1;
                } else {
                    found.push(row);
                }
            }
            Ok(found)
        })
        .await
    }

    /// Counts the pending questions of all threads except the named one and its children. An expired question
    /// is not counted, even if it has not been marked as expired yet.
    pub async fn waiting_count(&self, except: Option<&ThreadId>, now_ms: u64) -> Result<u64, StoreError> {
        let except = except.cloned();
        self.read(move |conn| {
            let sql = "SELECT count(*) FROM suspension s LEFT JOIN child c ON c.thread_id = s.thread_id \
                       WHERE s.status = 'open' AND s.action IS NOT ?3 AND s.thread_id IS NOT ?1 \
                       AND (?1 IS NULL OR c.root_thread IS NOT ?1) AND (s.expires_at IS NULL OR s.expires_at > ?2)";
            let except = except.as_ref().map(ThreadId::as_str);
            let mut statement = conn.prepare_cached(sql)?;
            Ok(uint(statement.query_row((except, int(now_ms), ACTION_CHILD_RUN), |row| row.get(0))?))
        })
        .await
    }

    /// Returns, for each id, the shortest prefix of at least `least` bytes that identifies it in
    /// [`Store::find_suspension`], or the whole id if no shorter prefix does.
    pub async fn short_ids(&self, ids: Vec<SuspensionId>, least: usize) -> Result<Vec<String>, StoreError> {
        self.read(move |conn| {
            let last: Option<i64> = conn.query_row("SELECT max(n) FROM suspension", (), |row| row.get(0))?;
            // Reading all ids in their order is cheaper than looking for the neighbours of many.
            let is_many = ids.len() as u64 * SEEK >= uint(last.unwrap_or(0));
            let all = if is_many { all_ids(conn)? } else { Vec::new() };
            let mut neighbours = conn.prepare_cached(
                "SELECT (SELECT max(id) FROM suspension WHERE id < ?1), (SELECT min(id) FROM suspension WHERE id > ?1)",
            )?;
            let mut short = Vec::with_capacity(ids.len());
            for id in &ids {
                let id = id.as_str();
                let with = |other: &[u8]| id.bytes().zip(other).take_while(|(a, b)| a == *b).count();
                let shared = if is_many {
                    let before = all.partition_point(|other| other.as_slice() < id.as_bytes());
                    let after = all.partition_point(|other| other.as_slice() <= id.as_bytes());
                    let others = [before.checked_sub(1).and_then(|at| all.get(at)), all.get(after)];
                    others.into_iter().flatten().map(|other| with(other)).max().unwrap_or(0)
                } else {
                    neighbours.query_row((id,), |row| {
                        let shared = |at| Ok::<_, rusqlite::Error>(body_or_null(row, at)?.map_or(0, with));
                        Ok(shared(0)?.max(shared(1)?))
                    })?
                };
                let mut end = (shared + 1).max(least).min(id.len());
                while !id.is_char_boundary(end) {
                    end += 1;
                }
                short.push(id[..end].to_owned());
            }
            Ok(short)
        })
        .await
    }
}

/// The number of ids that are read in their order in the time in which one is looked for.
const SEEK: u64 = 8;

/// Returns the ids of all questions, sorted.
fn all_ids(conn: &Connection) -> Result<Vec<Vec<u8>>, SqlFailure> {
    let mut statement = conn.prepare_cached("SELECT id FROM suspension ORDER BY id")?;
    let rows = statement.query_map((), |row| Ok(body(row, 0)?.to_vec()))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn row_of(row: &Row<'_>) -> Result<Option<InboxRow>, SqlFailure> {
    let id = text(row, 0)?;
    let maybe = |at: usize| -> rusqlite::Result<Option<String>> {
        Ok(body_or_null(row, at)?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    let shown = match body_or_null(row, 14)? {
        None => TicketView {
            action: maybe(7)?.unwrap_or_default(),
            tool: text(row, 8)?,
            summary: maybe(9)?.unwrap_or_default(),
            why: maybe(10)?.unwrap_or_default(),
            risk: maybe(11)?.as_deref().and_then(Risk::parse),
        },
        // An older version wrote it.
        Some(ticket) => match serde_json::from_slice::<SuspendTicket>(ticket) {
            Ok(ticket) => TicketView::of(&ticket),
            Err(error) => {
                tracing::error!("question {id} cannot be read ({error})");
                return Ok(None);
            }
        },
    };
    let TicketView { action, tool, summary, why, risk } = shown;
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
        child: match (maybe(15)?, maybe(16)?) {
            (Some(agent), Some(root)) => Some(InboxChild { agent, root: root.into() }),
            _ => None,
        },
    }))
}
