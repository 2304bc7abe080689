//! Export and import of whole conversations.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::rows::{body, decode, encode, int, run_status, text, uint};
use super::{
    CopyPart, ExportPart, SqlFailure, Store, StoreError, ThreadCopy, ThreadCopyFile, ThreadExport,
    ThreadRest, audit, children, images, journal, runs, suspensions, threads,
};
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::child::ChildRecord;
use aye_core::contract::ids::{RunId, ThreadId, check_given};
use aye_core::contract::image::ImageRef;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::{Message, Role};
use aye_core::contract::record::{Decision, RunRecord, StoredMessage, SuspensionRecord, SuspensionStatus};
use aye_core::contract::storage::SuspensionFilter;
use aye_core::contract::summary::SummaryRecord;

/// The result shown to the model for a call that had no result when its conversation was exported.
const NOT_HERE: &str = "The conversation was copied while this call was waiting. It did not run here.";
/// Why a file is refused whose second reading differs from the first.
const CHANGED: &str = "the file changed while it was read";

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

    /// Passes on a thread and those of the subagents below it, each after its parent, as they are at one moment, until
    /// `each` returns `false`. Only one part is in memory at a time.
    ///
    /// # Errors
    /// [`StoreError::NoThread`]; [`StoreError::Damaged`] when something of one is unreadable. Missing messages are found
    /// before anything of their thread is passed on.
    pub async fn export_parts(
        &self,
        id: &ThreadId,
        mut each: impl FnMut(ExportPart) -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        let id = id.clone();
        self.read(move |conn| {
            let below = children::children_below(conn, &id)?;
            let all = std::iter::once((None, id)).chain(below.into_iter().map(|child| {
                let id = child.thread_id.clone();
                (Some(child), id)
            }));
            for (child, id) in all {
                let thread = threads::one(conn, &id)?.ok_or_else(|| StoreError::NoThread(id.clone()))?;
                threads::check_places(conn, &id)?;
                let rest = small_rest_of(conn, &id)?;
                let is_wanted = each(ExportPart::Start { child, thread })
                    && parts_of(conn, &id, &PARTS, &mut |part| each(ExportPart::Part(part)))?
                    && each(ExportPart::End(Box::new(rest)));
                if !is_wanted {
                    break;
                }
            }
            Ok(())
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
        self.write(move |tx| {
            let mut outline = copy;
            let mut parts = vec![take_parts(&mut outline)];
            parts.extend(outline.children.iter_mut().map(take_parts));
            import_all(tx, outline, |put| {
                let mut numbered = parts.into_iter().enumerate();
                numbered.try_for_each(|(nth, parts)| parts.into_iter().try_for_each(|part| put(nth, part)))
            })
        })
        .await
    }

    /// Does the same with a conversation in a file, of which only a part is in memory at a time. `outline` is what
    /// [`ThreadCopyFile::outline`] read from the file, with `adopted`.
    ///
    /// # Errors
    /// As above, and when the file is unreadable or changed.
    pub async fn import_thread_file(
        &self,
        outline: ThreadCopy,
        mut file: ThreadCopyFile,
    ) -> Result<(), StoreError> {
        self.write(move |tx| import_all(tx, outline, |put| file.parts(put))).await
    }
}

fn rest_of(conn: &Connection, id: &ThreadId) -> Result<ThreadRest, SqlFailure> {
    let mut rest = small_rest_of(conn, id)?;
    parts_of(conn, id, &PARTS[1..], &mut |part| {
        match part {
            CopyPart::Message(_) => {}
            CopyPart::Run(run) => rest.runs.push(*run),
            CopyPart::Summary(summary) => rest.summaries.push(summary),
            CopyPart::Image { hash, data } => {
                rest.images.insert(hash, data);
            }
        }
        true
    })?;
    Ok(rest)
}

/// Everything but what [`parts_of`] passes on.
fn small_rest_of(conn: &Connection, id: &ThreadId) -> Result<ThreadRest, SqlFailure> {
    let (named_by, pinned_at, branch, count) = conn
        .prepare_cached("SELECT named_by, pinned_at, branch, messages FROM thread WHERE id = ?1")?
        .query_row((id.as_str(),), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?
        .ok_or_else(|| StoreError::NoThread(id.clone()))?;
    let filter = SuspensionFilter { thread: Some(id.clone()), ..SuspensionFilter::default() };
    let mut questions = suspensions::listed(conn, &filter)?;
    questions
        .retain(|question| matches!(question.status, SuspensionStatus::Open | SuspensionStatus::Decided));
    Ok(ThreadRest {
        suspensions: questions,
        intents: journal::unknown_of(conn, id)?,
        message_count: uint(count),
        state: threads::state_of(conn, id)?,
        named_by,
        pinned_at,
        branch,
        ..ThreadRest::default()
    })
}

type ReadPart = fn(&ThreadId, &Row<'_>) -> Result<CopyPart, SqlFailure>;

/// The parts of a thread in their order: messages, runs, all summaries, images.
const PARTS: [(&str, ReadPart); 4] = [
    ("SELECT seq, run_id, created_at, body FROM message WHERE thread_id = ?1 ORDER BY seq", |id, row| {
        Ok(CopyPart::Message(threads::message_of(id, row)?))
    }),
    ("SELECT thread_id, id, body FROM run WHERE thread_id = ?1 ORDER BY n", |_, row| {
        Ok(CopyPart::Run(Box::new(runs::run_of(row)?)))
    }),
    ("SELECT body FROM summary WHERE thread_id = ?1 ORDER BY upto_seq", |id, row| {
        Ok(CopyPart::Summary(decode(id, "a summary of it", body(row, 0)?)?))
    }),
    (
        "SELECT i.hash, i.data FROM image_of o JOIN image i ON i.hash = o.hash WHERE o.thread_id = ?1 \
         ORDER BY i.hash",
        |_, row| Ok(CopyPart::Image { hash: text(row, 0)?, data: STANDARD.encode(body(row, 1)?) }),
    ),
];

/// Passes on parts of a thread until `each` returns `false`. Returns whether it never did.
fn parts_of(
    conn: &Connection,
    id: &ThreadId,
    parts: &[(&str, ReadPart)],
    each: &mut dyn FnMut(CopyPart) -> bool,
) -> Result<bool, SqlFailure> {
    for (sql, read) in parts {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query((id.as_str(),))?;
        while let Some(row) = rows.next()? {
            if !each(read(id, row)?) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn broken(why: String) -> SqlFailure {
    SqlFailure(StoreError::Unwritable { what: "the conversation", why })
}

/// Takes the parts out of a copy, in the order of a file.
fn take_parts(copy: &mut ThreadCopy) -> Vec<CopyPart> {
    let messages = std::mem::take(&mut copy.messages).into_iter();
    let runs = std::mem::take(&mut copy.rest.runs).into_iter();
    let summaries = std::mem::take(&mut copy.rest.summaries).into_iter();
    let images = std::mem::take(&mut copy.rest.images).into_iter();
    messages
        .map(CopyPart::Message)
        .chain(runs.map(|run| CopyPart::Run(Box::new(run))))
        .chain(summaries.map(CopyPart::Summary))
        .chain(images.map(|(hash, data)| CopyPart::Image { hash, data }))
        .collect()
}

/// Adds the threads, then their parts as they come. A run in `rest.runs` replaces the part with its id.
fn import_all(
    tx: &Connection,
    mut copy: ThreadCopy,
    parts: impl FnOnce(&mut dyn FnMut(usize, CopyPart) -> Result<(), SqlFailure>) -> Result<(), SqlFailure>,
) -> Result<(), SqlFailure> {
    let below = std::mem::take(&mut copy.children);
    let root = copy.thread.id.clone();
    let mut known = HashSet::from([root.clone()]);
    let mut threads = vec![ThreadImport::start(tx, copy)?];
    for mut copy in below {
        let id = copy.thread.id.clone();
        let Some(child) = copy.child.take().filter(|child| known.contains(&child.parent_thread)) else {
            return Err(broken(format!("the conversation above {id} is missing")));
        };
        let child = ChildRecord { thread_id: id.clone(), root_thread: root.clone(), ..child };
        threads.push(ThreadImport::start(tx, copy)?);
        children::insert(tx, &child)?;
        known.insert(id);
    }
    parts(&mut |nth, part| match threads.get_mut(nth) {
        Some(thread) => thread.add(tx, part),
        None => Err(broken(CHANGED.to_owned())),
    })?;
    threads.into_iter().try_for_each(|thread| thread.finish(tx))
}

/// A thread whose parts are being added.
struct ThreadImport {
    copy: ThreadCopy,
    /// The number of its messages so far.
    messages: u64,
    /// The last answer of a model: its run, and its calls that have no result so far.
    last_answer: Option<(RunId, Vec<String>)>,
}

impl ThreadImport {
    fn start(tx: &Connection, copy: ThreadCopy) -> Result<Self, SqlFailure> {
        if !threads::add(tx, &copy.thread)? {
            return Err(StoreError::Exists { what: format!("thread {}", copy.thread.id) }.into());
        }
        Ok(Self { copy, messages: 0, last_answer: None })
    }

    fn add(&mut self, tx: &Connection, part: CopyPart) -> Result<(), SqlFailure> {
        match part {
            CopyPart::Message(stored) => self.add_message(tx, &stored),
            CopyPart::Run(run) => self.add_run(tx, *run),
            CopyPart::Summary(summary) => {
                let id = &self.copy.thread.id;
                let summary = SummaryRecord { thread_id: id.clone(), ..summary };
                tx.prepare_cached("INSERT INTO summary (thread_id, upto_seq, body) VALUES (?1, ?2, ?3)")?
                    .execute((id.as_str(), int(summary.upto_seq), encode("the summary", &summary)?))?;
                Ok(())
            }
            CopyPart::Image { hash, data } => {
                let bytes =
                    STANDARD.decode(data).map_err(|error| broken(format!("image {hash}: {error}")))?;
                match ImageRef::of("image", &bytes) {
                    Ok(image) if image.hash == hash => {
                        images::put(tx, &hash, &bytes, self.copy.thread.updated_at)
                    }
                    _ => Err(broken(format!("image {hash} does not match its hash"))),
                }
            }
        }
    }

    fn add_message(&mut self, tx: &Connection, stored: &StoredMessage) -> Result<(), SqlFailure> {
        let place = self.messages + 1;
        if stored.seq != place {
            return Err(broken(format!("message {place} is missing or not in its place")));
        }
        if stored.message.role == Role::Assistant {
            let calls = stored.message.tool_calls.iter().map(|call| call.id.clone()).collect();
            self.last_answer = Some((stored.run_id.clone(), calls));
        }
        if let (Some(answered), Some((_, calls))) = (&stored.message.tool_call_id, &mut self.last_answer) {
            calls.retain(|call| call != answered);
        }
        let id = &self.copy.thread.id;
        let message = stored.message.without_goal_command();
        let kept = images::keep(tx, id, stored.created_at, &message)?;
        let body = encode("the message", &*kept)?;
        tx.prepare_cached(
            "INSERT INTO message (thread_id, seq, run_id, created_at, body) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((id.as_str(), int(place), stored.run_id.as_str(), int(stored.created_at), body))?;
        self.messages = place;
        Ok(())
    }

    fn add_run(&mut self, tx: &Connection, run: RunRecord) -> Result<(), SqlFailure> {
        let ThreadCopy { thread, rest, adopted, .. } = &mut self.copy;
        let unfinished = rest.runs.iter().position(|kept| kept.id == run.id);
        let mut run = unfinished.map_or(run, |at| rest.runs.swap_remove(at));
        let marked = adopted.get(&run.id);
        import_run(tx, &thread.id, &mut run, marked.is_some())?;
        let asked = rest.suspensions.iter().filter(|question| marked.is_some() && question.run_id == run.id);
        for question in asked {
            import_question(tx, &run, question)?;
        }
        for (begin, outcome) in marked.into_iter().flatten() {
            journal::start(tx, begin)?;
            journal::end(tx, &thread.id, outcome)?;
            audit::append_entry(tx, &AuditEntry::ended(&begin.fence, &run, outcome))?;
        }
        Ok(())
    }

    fn finish(mut self, tx: &Connection) -> Result<(), SqlFailure> {
        if !self.copy.rest.runs.is_empty() {
            return Err(broken(CHANGED.to_owned()));
        }
        self.close_calls(tx)?;
        let ThreadCopy { thread, rest, .. } = self.copy;
        tx.prepare_cached(
            "UPDATE thread SET messages = ?2, unsaid = ?2 > 0, named_by = ?3, pinned_at = ?4, branch = ?5 WHERE id = ?1",
        )?
        .execute((
            thread.id.as_str(),
            int(self.messages),
            rest.named_by.filter(|by| matches!(by.as_str(), "model" | "person")),
            rest.pinned_at,
            rest.branch,
        ))?;
        if !rest.state.is_empty() {
            threads::set_state(tx, &thread.id, &rest.state)?;
        }
        Ok(())
    }

    /// Adds results for the calls at the end that have none, unless their run continues: models refuse calls without
    /// results.
    fn close_calls(&mut self, tx: &Connection) -> Result<(), SqlFailure> {
        let Some((run_id, calls)) = self.last_answer.take() else { return Ok(()) };
        if self.copy.adopted.contains_key(&run_id) {
            return Ok(());
        }
        for call in calls {
            let stored = StoredMessage {
                seq: self.messages + 1,
                run_id: run_id.clone(),
                created_at: self.copy.thread.updated_at,
                message: Message::tool(call, NOT_HERE),
            };
            self.add_message(tx, &stored)?;
        }
        Ok(())
    }
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
