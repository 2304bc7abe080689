//! Threads started by a call of another thread.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::rows::{all, body_or_null, int, path_bytes, text, uint};
use super::{ChangeKind, SqlFailure, Store, StoreChange, StoreError, SuspensionFilter, runs, suspensions};
use aye_core::contract::child::{ChildRecord, TaskRecord, TaskRun};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobOrigin};
use aye_core::contract::message::Message;
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::ACTION_CHILD_RUN;

const COLUMNS: &str = "c.thread_id, c.parent_thread, c.root_thread, c.parent_run, c.parent_call, c.agent, c.prompt, \
                       c.model, c.depth, c.background, c.told, c.created_at, c.stop";

/// The threads below a thread. With `?2` set, only those whose call waits for them, all the way down.
const BELOW: &str = "WITH RECURSIVE below(id) AS ( \
                     SELECT thread_id FROM child WHERE parent_thread = ?1 AND (?2 = 0 OR background = 0) \
                     UNION SELECT c.thread_id FROM child c JOIN below b ON c.parent_thread = b.id \
                     WHERE ?2 = 0 OR c.background = 0)";

impl Store {
    /// Creates the thread of a child, once for each call, and returns its record; an existing one is returned
    /// unchanged.
    ///
    /// # Errors
    /// [`StoreError::NoThread`] when its parent was deleted, [`StoreError::Exists`] when its id names
    /// something else.
    pub async fn create_child(
        &self,
        child: ChildRecord,
        title: String,
        cwd: PathBuf,
    ) -> Result<ChildRecord, StoreError> {
        let change = StoreChange::of(ChangeKind::Run, &child.parent_thread);
        let work = move |tx: &Transaction<'_>| {
            if let Some(known) = one(tx, &child.thread_id)? {
                let is_same = known.parent_run == child.parent_run && known.parent_call == child.parent_call;
                return if is_same {
                    Ok(known)
                } else {
                    Err(StoreError::Exists { what: format!("thread {}", child.thread_id) }.into())
                };
            }
            if !super::threads::exists(tx, &child.parent_thread)? {
                return Err(StoreError::NoThread(child.parent_thread).into());
            }
            let added = tx
                .prepare_cached(
                    "INSERT INTO thread (id, title, cwd, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4) \
                     ON CONFLICT DO NOTHING",
                )?
                .execute((child.thread_id.as_str(), title, path_bytes(&cwd), int(child.created_at)))?;
            if added == 0 {
                return Err(StoreError::Exists { what: format!("thread {}", child.thread_id) }.into());
            }
            insert(tx, &child)?;
            Ok(child)
        };
        let places = ("store.child.before", "store.child.after");
        self.write_and_publish(true, places, work, |_| Some(change)).await
    }

    /// Returns the child record of a thread; `None` for a thread that a user started.
    pub async fn child(&self, thread: &ThreadId) -> Result<Option<ChildRecord>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| one(conn, &thread)).await
    }

    /// The thread whose driver drives this one: the first one above it that no call waits for. It may be itself.
    pub async fn driven_with(&self, thread: &ThreadId) -> Result<ThreadId, StoreError> {
        let mut thread = thread.clone();
        self.read(move |conn| {
            while let Some(child) = one(conn, &thread)? {
                if child.background {
                    break;
                }
                thread = child.parent_thread;
            }
            Ok(thread)
        })
        .await
    }

    /// Returns the child records of the threads below a thread, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    pub async fn children(&self, thread: &ThreadId) -> Result<Vec<ChildRecord>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| children_below(conn, &thread)).await
    }

    /// The children below a thread, and theirs, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a run is unreadable.
    pub async fn tasks(&self, thread: &ThreadId) -> Result<Vec<TaskRecord>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| tasks_below(conn, &thread, false)).await
    }

    /// The children of all threads, or only those that are not over, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a run is unreadable.
    pub async fn all_tasks(&self, open_only: bool) -> Result<Vec<TaskRecord>, StoreError> {
        self.read(move |conn| {
            let sql = format!("SELECT {COLUMNS} FROM child c ORDER BY c.n");
            tasks_of(conn, all(conn, &sql, (), |row| Ok(child_of(row)?))?, open_only)
        })
        .await
    }

    /// Records that a child must end, for the process that drives it. Returns `false` if there is no such
    /// child.
    pub async fn stop_child(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let thread = thread.clone();
        let change = StoreChange::of(ChangeKind::Decision, &thread);
        let work = move |tx: &Transaction<'_>| {
            Ok(tx
                .prepare_cached("UPDATE child SET stop = 1 WHERE thread_id = ?1")?
                .execute((thread.as_str(),))?
                > 0)
        };
        self.write_and_publish(true, ("", ""), work, |found| found.then_some(change)).await
    }

    /// Returns the questions that users must answer before this thread, and the children its calls wait for,
    /// can resume.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a question is unreadable.
    pub async fn waiting_below(&self, thread: &ThreadId) -> Result<Vec<SuspensionRecord>, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| questions_below(conn, &thread, SuspensionStatus::Open, true)).await
    }

    /// Whether a question at the thread or below it was answered, and its unfinished run has not applied the
    /// answer yet.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a question is unreadable.
    pub async fn has_answers(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let thread = thread.clone();
        self.read(move |conn| {
            let mut threads = below(conn, &thread, true)?;
            threads.push(thread);
            for thread in &threads {
                if answers_of(conn, thread)? > 0 {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await
    }

    /// Returns the threads whose unfinished run may have something to read about its questions: one was answered or has
    /// expired, or the run was asked to stop.
    pub async fn answered_threads(&self) -> Result<Vec<ThreadId>, StoreError> {
        self.read(|conn| {
            let sql = "SELECT r.thread_id FROM run r WHERE r.status <> 'done' AND (\
                       EXISTS (SELECT 1 FROM suspension s WHERE s.run_id = r.id AND s.status IN ('decided', 'expired')) \
                       OR EXISTS (SELECT 1 FROM child c WHERE c.thread_id = r.thread_id AND c.stop = 1)) ORDER BY r.n";
            all(conn, sql, (), |row| Ok(ThreadId::from(text(row, 0)?)))
        })
        .await
    }

    /// Reports the end of a background child to its parent, once, in a message for this agent. Returns
    /// `false` if the end was already reported.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn queue_child_end(
        &self,
        thread: &ThreadId,
        agent: String,
        messages: Vec<Message>,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let thread = thread.clone();
        let work = move |tx: &Transaction<'_>| {
            let parent: Option<String> = tx
                .prepare_cached(
                    "UPDATE child SET told = 1 WHERE thread_id = ?1 AND background = 1 AND told = 0 \
                     RETURNING parent_thread",
                )?
                .query_row((thread.as_str(),), |row| text(row, 0))
                .optional()?;
            let Some(parent) = parent.map(ThreadId::from) else { return Ok(None) };
            let mut job = MailboxJob::new(parent.clone(), messages, now_ms);
            job.origin = MailboxJobOrigin::Internal;
            job.agent_id = agent;
            job.sender_id = Some(thread.to_string());
            super::mailbox::insert(tx, job)?;
            Ok(Some(parent))
        };
        let places = ("store.child_end.before", "store.child_end.after");
        let told = self
            .write_and_publish(true, places, work, |parent| {
                parent.as_ref().map(|parent| StoreChange::of(ChangeKind::Queue, parent))
            })
            .await?;
        Ok(told.is_some())
    }
}

/// Adds the record of a child whose thread exists.
pub(super) fn insert(conn: &Connection, child: &ChildRecord) -> Result<(), SqlFailure> {
    conn.prepare_cached(
        "INSERT INTO child (thread_id, parent_thread, root_thread, parent_run, parent_call, agent, prompt, \
                            model, depth, background, told, created_at, stop) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute((
        child.thread_id.as_str(),
        child.parent_thread.as_str(),
        child.root_thread.as_str(),
        child.parent_run.as_str(),
        child.parent_call.as_str(),
        &child.agent,
        &child.prompt,
        &child.model,
        child.depth,
        child.background,
        child.told,
        int(child.created_at),
        child.stop,
    ))?;
    Ok(())
}

pub(super) fn one(conn: &Connection, thread: &ThreadId) -> Result<Option<ChildRecord>, SqlFailure> {
    Ok(conn
        .prepare_cached(&format!("SELECT {COLUMNS} FROM child c WHERE c.thread_id = ?1"))?
        .query_row((thread.as_str(),), child_of)
        .optional()?)
}

/// The threads below this one; `served`: only those that a call waits for.
pub(super) fn below(conn: &Connection, thread: &ThreadId, served: bool) -> Result<Vec<ThreadId>, SqlFailure> {
    let sql = format!("{BELOW} SELECT id FROM below");
    all(conn, &sql, (thread.as_str(), served), |row| Ok(ThreadId::from(text(row, 0)?)))
}

/// Returns the questions to users, of the thread and of those below it, oldest first; `served` as for
/// [`below`].
pub(super) fn questions_below(
    conn: &Connection,
    thread: &ThreadId,
    status: SuspensionStatus,
    served: bool,
) -> Result<Vec<SuspensionRecord>, SqlFailure> {
    let mut threads = below(conn, thread, served)?;
    threads.insert(0, thread.clone());
    let mut found = Vec::new();
    for thread in threads {
        let filter =
            SuspensionFilter { thread: Some(thread), status: Some(status), ..SuspensionFilter::default() };
        found.extend(suspensions::listed(conn, &filter)?.into_iter().filter(|row| !row.ticket.is_served()));
    }
    found.sort_by_key(|row| row.created_at);
    Ok(found)
}

/// Answers that a thread's unfinished run has not carried out.
pub(super) fn answers_of(conn: &Connection, thread: &ThreadId) -> Result<usize, SqlFailure> {
    let Some(run) = runs::latest(conn, thread)?.filter(|run| run.status != RunStatus::Done) else {
        return Ok(0);
    };
    let count: i64 = conn
        .prepare_cached("SELECT count(*) FROM suspension WHERE run_id = ?1 AND status = 'decided'")?
        .query_row((run.id.as_str(),), |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The children below a thread, oldest first; `open_only`: those that are not over.
pub(super) fn tasks_below(
    conn: &Connection,
    thread: &ThreadId,
    open_only: bool,
) -> Result<Vec<TaskRecord>, SqlFailure> {
    tasks_of(conn, children_below(conn, thread)?, open_only)
}

pub(super) fn children_below(conn: &Connection, thread: &ThreadId) -> Result<Vec<ChildRecord>, SqlFailure> {
    let sql =
        format!("{BELOW} SELECT {COLUMNS} FROM child c JOIN below b ON b.id = c.thread_id ORDER BY c.n");
    all(conn, &sql, (thread.as_str(), false), |row| Ok(child_of(row)?))
}

fn tasks_of(
    conn: &Connection,
    children: Vec<ChildRecord>,
    open_only: bool,
) -> Result<Vec<TaskRecord>, SqlFailure> {
    let mut found = Vec::with_capacity(children.len());
    for child in children {
        let run = runs::latest(conn, &child.thread_id)?.map(TaskRun::from);
        if open_only && run.as_ref().is_some_and(|run| run.status == RunStatus::Done) {
            continue;
        }
        let mut waiting = 0;
        let mut threads = below(conn, &child.thread_id, true)?;
        threads.push(child.thread_id.clone());
        for thread in threads {
            let count: i64 = conn
                .prepare_cached(
                    "SELECT count(*) FROM suspension WHERE thread_id = ?1 AND status = 'open' AND action IS NOT ?2",
                )?
                .query_row((thread.as_str(), ACTION_CHILD_RUN), |row| row.get(0))?;
            waiting += uint(count);
        }
        found.push(TaskRecord { child, run, waiting });
    }
    Ok(found)
}

fn child_of(row: &Row<'_>) -> rusqlite::Result<ChildRecord> {
    Ok(ChildRecord {
        thread_id: text(row, 0)?.into(),
        parent_thread: text(row, 1)?.into(),
        root_thread: text(row, 2)?.into(),
        parent_run: text(row, 3)?.into(),
        parent_call: text(row, 4)?.into(),
        agent: text(row, 5)?,
        prompt: text(row, 6)?,
        model: body_or_null(row, 7)?.map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
        depth: row.get(8)?,
        background: row.get(9)?,
        told: row.get(10)?,
        created_at: uint(row.get(11)?),
        stop: row.get(12)?,
    })
}
