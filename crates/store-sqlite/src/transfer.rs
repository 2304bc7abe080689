//! Export and import of whole conversations.

use std::collections::{BTreeMap, HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rows::{all, body, decode, encode, int, run_status, text, uint};
use super::{SqlFailure, Store, StoreError, audit, children, images, journal, runs, suspensions, threads};
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::child::ChildRecord;
use aye_core::contract::ids::{RunId, ThreadId, check_given};
use aye_core::contract::image::ImageRef;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::{Message, Role};
use aye_core::contract::record::{
    Decision, ExecutionStart, OpenIntent, OutcomeRecord, RunRecord, StoredMessage, SuspensionRecord,
    SuspensionStatus, ThreadRecord,
};
use aye_core::contract::storage::SuspensionFilter;
use aye_core::contract::summary::SummaryRecord;

/// The result shown to the model for a call that had no result when its conversation was exported.
const NOT_HERE: &str = "The conversation was copied while this call was waiting. It did not run here.";

/// The parts of a conversation besides its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadRest {
    /// Its runs, oldest first.
    #[serde(default)]
    pub runs: Vec<RunRecord>,
    /// Its state by key.
    #[serde(default)]
    pub state: BTreeMap<String, Value>,
    /// Its summaries.
    #[serde(default)]
    pub summaries: Vec<SummaryRecord>,
    /// The images that its messages name: base64 by SHA-256.
    #[serde(default)]
    pub images: BTreeMap<String, String>,
    /// The source of its title, unless that is its first line: `model` or `person`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_by: Option<String>,
    /// The time since when it is pinned, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_at: Option<i64>,
    /// The branch it worked on last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The questions of its unfinished runs that are open, or decided and not carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspensions: Vec<SuspensionRecord>,
    /// The executions of its unfinished runs whose outcome is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intents: Vec<OpenIntent>,
    /// The number of its messages when the rest was read.
    #[serde(skip)]
    pub message_count: u64,
}

/// A conversation without its messages.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadExport {
    /// The call that it serves, when it is below the exported conversation.
    pub child: Option<ChildRecord>,
    /// The thread.
    pub thread: ThreadRecord,
    /// The rest.
    pub rest: ThreadRest,
}

/// A whole conversation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ThreadCopy {
    /// The call that it serves, when it is below the copied conversation.
    #[serde(default)]
    pub child: Option<ChildRecord>,
    /// The thread.
    pub thread: ThreadRecord,
    /// The messages.
    pub messages: Vec<StoredMessage>,
    /// The rest.
    #[serde(flatten)]
    pub rest: ThreadRest,
    /// The conversations of the subagents below it, each after its parent.
    #[serde(default)]
    pub children: Vec<ThreadCopy>,
    /// The unfinished runs that continue here, and their calls that may have run elsewhere.
    #[serde(skip)]
    pub adopted: HashMap<RunId, Vec<(ExecutionStart, OutcomeRecord)>>,
}

impl Store {
    /// Returns a thread and those of the subagents below it, each after its parent, as they are at one moment.
    ///
    /// # Errors
    /// [`StoreError::NoThread`]; [`StoreError::Damaged`] when something of one is unreadable.
    pub async fn export_threads(&self, id: &ThreadId) -> Result<Vec<ThreadExport>, StoreError> {
        let id = id.clone();
        self.read(move |conn| {
            let below = children::children_below(conn, &id)?;
            let all = std::iter::once((None, id)).chain(below.into_iter().map(|child| {
                let id = child.thread_id.clone();
                (Some(child), id)
            }));
            all.map(|(child, id)| {
                let thread = threads::one(conn, &id)?.ok_or_else(|| StoreError::NoThread(id.clone()))?;
                Ok(ThreadExport { child, rest: rest_of(conn, &id)?, thread })
            })
            .collect()
        })
        .await
    }

    /// Adds a thread that was written elsewhere, with all its parts and the threads below it. The runs in
    /// `adopted` stay as they are, and their pending questions are pending again. Other runs are closed here:
    /// their unfinished work is cancelled, and a call without a result gets one that states this.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when a thread or a run of the same id exists; [`StoreError::Unwritable`] when
    /// the copy is incomplete.
    pub async fn import_thread(&self, copy: ThreadCopy) -> Result<(), StoreError> {
        self.write(move |tx| import_all(tx, copy)).await
    }
}

fn rest_of(conn: &Connection, id: &ThreadId) -> Result<ThreadRest, SqlFailure> {
    let (named_by, pinned_at, branch, count) = conn
        .prepare_cached("SELECT named_by, pinned_at, branch, messages FROM thread WHERE id = ?1")?
        .query_row((id.as_str(),), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?
        .ok_or_else(|| StoreError::NoThread(id.clone()))?;
    let mut images = BTreeMap::new();
    let sql = "SELECT i.hash, i.data FROM image_of o JOIN image i ON i.hash = o.hash WHERE o.thread_id = ?1";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((id.as_str(),))?;
    while let Some(row) = rows.next()? {
        images.insert(text(row, 0)?, STANDARD.encode(body(row, 1)?));
    }
    let filter = SuspensionFilter { thread: Some(id.clone()), ..SuspensionFilter::default() };
    let mut questions = suspensions::listed(conn, &filter)?;
    questions
        .retain(|question| matches!(question.status, SuspensionStatus::Open | SuspensionStatus::Decided));
    Ok(ThreadRest {
        runs: runs::of_thread(conn, id)?,
        suspensions: questions,
        intents: journal::unknown_of(conn, id)?,
        message_count: uint(count),
        state: threads::state_of(conn, id)?,
        summaries: summaries_of(conn, id)?,
        images,
        named_by,
        pinned_at,
        branch,
    })
}

/// All summaries of a thread, not only the newest.
fn summaries_of(conn: &Connection, id: &ThreadId) -> Result<Vec<SummaryRecord>, SqlFailure> {
    let sql = "SELECT body FROM summary WHERE thread_id = ?1 ORDER BY upto_seq";
    all(conn, sql, (id.as_str(),), |row| decode(id, "a summary of it", body(row, 0)?))
}

fn broken(why: String) -> SqlFailure {
    SqlFailure(StoreError::Unwritable { what: "the conversation", why })
}

fn import_all(tx: &Connection, mut copy: ThreadCopy) -> Result<(), SqlFailure> {
    let below = std::mem::take(&mut copy.children);
    let root = copy.thread.id.clone();
    let mut known = HashSet::from([root.clone()]);
    import(tx, ThreadCopy { child: None, ..copy })?;
    for mut copy in below {
        let id = copy.thread.id.clone();
        let Some(child) = copy.child.take().filter(|child| known.contains(&child.parent_thread)) else {
            return Err(broken(format!("the conversation above {id} is missing")));
        };
        let child = ChildRecord { thread_id: id.clone(), root_thread: root.clone(), ..child };
        import(tx, copy)?;
        children::insert(tx, &child)?;
        known.insert(id);
    }
    Ok(())
}

fn import(tx: &Connection, copy: ThreadCopy) -> Result<(), SqlFailure> {
    let ThreadCopy { thread, mut messages, rest, adopted, .. } = copy;
    if let Some(at) = messages.iter().zip(1..).position(|(stored, seq)| stored.seq != seq) {
        return Err(broken(format!("message {} is missing or not in its place", at + 1)));
    }
    if !threads::add(tx, &thread)? {
        return Err(StoreError::Exists { what: format!("thread {}", thread.id) }.into());
    }
    let id = &thread.id;
    for (hash, data) in &rest.images {
        let bytes = STANDARD.decode(data).map_err(|error| broken(format!("image {hash}: {error}")))?;
        match ImageRef::of("image", &bytes) {
            Ok(image) if image.hash == *hash => images::put(tx, hash, &bytes, thread.updated_at)?,
            _ => return Err(broken(format!("image {hash} does not match its hash"))),
        }
    }
    for mut run in rest.runs {
        let marked = adopted.get(&run.id);
        import_run(tx, id, &mut run, marked.is_some())?;
        let asked = rest.suspensions.iter().filter(|question| marked.is_some() && question.run_id == run.id);
        for question in asked {
            import_question(tx, &run, question)?;
        }
        for (begin, outcome) in marked.into_iter().flatten() {
            journal::start(tx, begin)?;
            journal::end(tx, id, outcome)?;
            audit::tell(tx, &AuditEntry::ended(&begin.fence, &run, outcome))?;
        }
    }
    close_calls(&thread, &mut messages, &adopted);
    let mut insert = tx.prepare_cached(
        "INSERT INTO message (thread_id, seq, run_id, created_at, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for stored in &messages {
        let kept = images::keep(tx, id, stored.created_at, &stored.message)?;
        let body = encode("the message", &*kept)?;
        insert.execute((
            id.as_str(),
            int(stored.seq),
            stored.run_id.as_str(),
            int(stored.created_at),
            body,
        ))?;
    }
    tx.prepare_cached(
        "UPDATE thread SET messages = ?2, unsaid = ?2 > 0, named_by = ?3, pinned_at = ?4, branch = ?5 WHERE id = ?1",
    )?
    .execute((
        id.as_str(),
        messages.len() as i64,
        rest.named_by.filter(|by| matches!(by.as_str(), "model" | "person")),
        rest.pinned_at,
        rest.branch,
    ))?;
    if !rest.state.is_empty() {
        threads::set_state(tx, id, &rest.state)?;
    }
    for summary in rest.summaries {
        let summary = SummaryRecord { thread_id: id.clone(), ..summary };
        tx.prepare_cached("INSERT INTO summary (thread_id, upto_seq, body) VALUES (?1, ?2, ?3)")?
            .execute((id.as_str(), int(summary.upto_seq), encode("the summary", &summary)?))?;
    }
    Ok(())
}

fn import_run(
    tx: &Connection,
    thread: &ThreadId,
    run: &mut RunRecord,
    continues: bool,
) -> Result<(), SqlFailure> {
    check_given("run", run.id.as_str())?;
    if runs::exists(tx, &run.id)? {
        return Err(StoreError::Exists { what: format!("run {}", run.id) }.into());
    }
    run.thread_id = thread.clone();
    if run.status != RunStatus::Done && !continues {
        run.status = RunStatus::Done;
        run.termination = Some(TerminationReason::Cancelled);
    }
    // Not counted: what it took was counted where it ran.
    let sql = "INSERT INTO run (id, thread_id, status, body, parent_run_id) VALUES (?1, ?2, ?3, ?4, ?5)";
    tx.prepare_cached(sql)?.execute((
        run.id.as_str(),
        thread.as_str(),
        run_status(run.status),
        encode("the run", run)?,
        run.parent_run_id.as_ref().map(RunId::as_str),
    ))?;
    Ok(())
}

/// Adds an open question, with its answer when it has one.
fn import_question(tx: &Connection, run: &RunRecord, question: &SuspensionRecord) -> Result<(), SqlFailure> {
    let (status, decision) = (SuspensionStatus::Open, None);
    let open = SuspensionRecord { status, decision, decided_by: None, ..question.clone() };
    suspensions::insert(tx, run, &open)?;
    match (&question.decision, &question.decided_by) {
        (Some(resume), Some(actor)) => {
            let decision = Decision::new(resume.clone(), actor.clone());
            suspensions::answer(tx, &open, &decision, resume.updated_at)
        }
        _ => Ok(()),
    }
}

/// Gives the calls at the end that have no result one, unless their run continues: no model takes a call without.
fn close_calls(
    thread: &ThreadRecord,
    messages: &mut Vec<StoredMessage>,
    adopted: &HashMap<RunId, Vec<(ExecutionStart, OutcomeRecord)>>,
) {
    let answered: HashSet<String> =
        messages.iter().filter_map(|stored| stored.message.tool_call_id.clone()).collect();
    let Some(asks) = messages.iter().rfind(|stored| stored.message.role == Role::Assistant) else { return };
    let run = asks.run_id.clone();
    if adopted.contains_key(&run) {
        return;
    }
    let open: Vec<String> = asks
        .message
        .tool_calls
        .iter()
        .map(|call| call.id.clone())
        .filter(|id| !answered.contains(id))
        .collect();
    for call in open {
        messages.push(StoredMessage {
            seq: messages.len() as u64 + 1,
            run_id: run.clone(),
            created_at: thread.updated_at,
            message: Message::tool(call, NOT_HERE),
        });
    }
}
