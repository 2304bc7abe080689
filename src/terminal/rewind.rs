//! Rewind of the conversation, the files, or both; forks; the file changes of a conversation.

use std::sync::Arc;

use crate::contract::amount::counted;
use crate::contract::display::shortened;
use crate::contract::event_sink::EventSink;
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::RunStatus;
use crate::contract::message::{Message, Role, Visibility};
use crate::contract::record::{StoredMessage, ThreadRecord};
use crate::contract::snapshot::{Changes, RewindTarget, SnapshotRecord, TreeId, WentBackRecord};
use crate::contract::storage::{ForkAt, SharedStore};
use crate::failure::{AppError, Failure};
use crate::program::app_context::AppContext;
use crate::snapshots::{FolderSnapshots, RestorePlan, Restored};
use crate::tui::thread_actions::{RewindPoint, RewindPoints, RewindPreview, Rewound};

/// The maximum characters of a message quoted in a sentence.
const NAMED: usize = 40;
/// The maximum number of files shown with their changes.
const SHOWN_FILES: usize = 200;

/// The maximum number of rewind points of a conversation.
const LISTED: usize = 10_000;

/// Returns the rewind points of a conversation: before each message of the user, and after each step whose
/// calls all have results.
pub(crate) fn points_of(messages: &[StoredMessage]) -> Vec<RewindPoint> {
    let mut points = Vec::new();
    for (i, stored) in messages.iter().enumerate() {
        let message = &stored.message;
        if message.visibility == Visibility::Internal {
            continue;
        }
        match message.role {
            // Nobody wrote it.
            Role::User if message.reports_task() => {}
            Role::User => points.push(RewindPoint {
                keep: stored.seq - 1,
                is_message: true,
                text: message.text(),
                at: stored.created_at,
            }),
            Role::Assistant => {
                let results = messages[i + 1..].iter().take_while(|next| next.message.role == Role::Tool);
                let last = results.clone().last().unwrap_or(stored);
                if results.count() >= message.tool_calls.len() {
                    let text = words_of(message);
                    points.push(RewindPoint { keep: last.seq, is_message: false, text, at: last.created_at });
                }
            }
            Role::System | Role::Tool => {}
        }
    }
    points
}

/// Summarizes a step on one line.
fn words_of(message: &Message) -> String {
    let text = message.text();
    let text = text.trim().lines().next().unwrap_or_default();
    let calls: Vec<&str> = message.tool_calls.iter().map(|call| call.name.as_str()).collect();
    match (text.is_empty(), calls.is_empty()) {
        (false, false) => format!("{text} · {}", calls.join(", ")),
        (true, false) => calls.join(", "),
        (_, true) => text.to_owned(),
    }
}

fn short(text: &str) -> String {
    shortened(text.trim().lines().next().unwrap_or_default(), NAMED).into_owned()
}

/// The effect of a rewind on files.
enum Files {
    /// Nothing has changed since.
    Same,
    /// They can be restored to this tree.
    To(TreeId, Vec<String>),
    /// They cannot be restored, for this reason.
    Not(String),
}

impl AppContext {
    pub(crate) async fn back_points(&self, thread: &ThreadId) -> Result<RewindPoints, AppError> {
        let (_, messages) = self.store.messages_tail(thread, LISTED).await?;
        let went = self.store.last_went_back(thread).await?;
        Ok(RewindPoints { points: points_of(&messages), undo: went.map(|went| went.words) })
    }

    fn own_snapshots(&self) -> Result<FolderSnapshots, AppError> {
        self.snapshots.clone().ok_or_else(|| {
            let why = if self.foundation.is_ephemeral {
                "this conversation is not stored"
            } else {
                "snapshots.enabled is false in the settings"
            };
            format!("files cannot be restored: {why}").into()
        })
    }

    fn files_of(&self, snapshot: Option<SnapshotRecord>) -> Files {
        let Some(snapshot) = snapshot else { return Files::Same };
        let root = match self.own_snapshots() {
            Ok(own) => crate::contract::snapshot::Snapshots::root(&own),
            Err(why) => return Files::Not(why.to_string()),
        };
        if snapshot.root != root {
            return Files::Not(format!("they are in {}; run aye there", snapshot.root.display()));
        }
        let mut notes = Vec::new();
        let now = crate::runtime::head_of(&root);
        if snapshot.head != now {
            let word = |head: &Option<String>| head.clone().unwrap_or_else(|| "no repository".to_owned());
            notes.push(format!(
                "git stays unchanged: it was at {} and is at {}",
                word(&snapshot.head),
                word(&now)
            ));
        }
        match snapshot.tree {
            Some(tree) => {
                notes.extend((!snapshot.note.is_empty()).then_some(snapshot.note));
                Files::To(tree, notes)
            }
            None => Files::Not(snapshot.note),
        }
    }

    async fn files_behind(&self, thread: &ThreadId, keep: u64) -> Result<Files, AppError> {
        Ok(self.files_of(self.store.snapshot_behind(thread, keep).await?))
    }

    async fn last_back(&self, thread: &ThreadId) -> Result<WentBackRecord, AppError> {
        let went = self.store.last_went_back(thread).await?;
        went.ok_or_else(|| "there is no rewind to undo".into())
    }

    fn files_before(&self, went: &WentBackRecord) -> Files {
        let (Some(root), Some(tree)) = (&went.root, &went.tree) else { return Files::Same };
        self.files_of(Some(SnapshotRecord {
            thread_id: went.thread_id.clone(),
            run_id: crate::contract::ids::RunId::from(""),
            seq: 0,
            root: root.clone(),
            tree: Some(tree.clone()),
            note: String::new(),
            head: crate::runtime::head_of(root),
            created_at: went.created_at,
        }))
    }

    /// Returns the user's message right after a point.
    async fn message_after(&self, thread: &ThreadId, keep: u64) -> Result<Option<String>, AppError> {
        let next = self.store.messages_before(thread, keep.saturating_add(2), 1).await?;
        Ok(points_of(&next).into_iter().find(|point| point.is_message).map(|point| point.text))
    }

    async fn plan(&self, tree: TreeId) -> Result<RestorePlan, AppError> {
        let own = self.own_snapshots()?;
        Ok(tokio::task::spawn_blocking(move || own.plan(&tree)).await??)
    }

    pub(crate) async fn back_preview(
        &self,
        thread: &ThreadId,
        keep: Option<u64>,
    ) -> Result<RewindPreview, AppError> {
        let (files, moves) = if let Some(keep) = keep {
            (self.files_behind(thread, keep).await?, true)
        } else {
            let went = self.last_back(thread).await?;
            (self.files_before(&went), went.from_thread.is_some())
        };
        let mut preview = RewindPreview { moves, ..RewindPreview::default() };
        match files {
            Files::Same => preview.notes.push("no file changed since".to_owned()),
            Files::Not(why) => preview.no_files = Some(why),
            Files::To(tree, notes) => {
                preview.notes = notes;
                match self.plan(tree).await {
                    Ok(plan) => {
                        // Usually the same was left out then.
                        if !plan.note.is_empty() && !preview.notes.contains(&plan.note) {
                            preview.notes.push(plan.note.clone());
                        }
                        preview.files = plan.files;
                    }
                    Err(why) => preview.no_files = Some(why.to_string()),
                }
            }
        }
        Ok(preview)
    }

    /// Ensures that nothing is active in a conversation that is being left, and cancels its waiting run.
    async fn ensure_idle(&self, thread: &ThreadId, sink: Arc<dyn EventSink>) -> Result<(), AppError> {
        if self.runtime.is_active(thread) {
            return Err("interrupt the run first, then rewind".into());
        }
        if self.runtime.driven_elsewhere(thread).await?.is_some() {
            return Err("another process runs this conversation; interrupt it there first".into());
        }
        if !self.store.queued(thread).await?.is_empty() {
            return Err("messages are queued after this; drop them first".into());
        }
        let run = self.store.latest_run(thread).await?;
        if run.is_some_and(|run| run.status != RunStatus::Done) {
            // Its questions are closed, and their calls say that they did not run.
            self.runtime.cancel_waiting(thread, sink).await?;
        }
        Ok(())
    }

    /// Rewinds to a message; `None` undoes the last rewind. Either can be undone.
    pub(crate) async fn go_back(
        &self,
        thread: &ThreadId,
        keep: Option<u64>,
        what: RewindTarget,
        sink: Arc<dyn EventSink>,
    ) -> Result<Rewound, AppError> {
        let Some(keep) = keep else { return self.undo_back(thread, what, sink).await };
        let message = self.message_after(thread, keep).await?;
        let mut words = Vec::new();
        let plan = match self.files_behind(thread, keep).await? {
            _ if !what.takes_files() => None,
            Files::To(tree, _) => Some(self.plan(tree).await?),
            Files::Same if what == RewindTarget::Files => {
                return Err("no file changed since that message".into());
            }
            Files::Not(why) if what == RewindTarget::Files => return Err(why.into()),
            Files::Same => None,
            Files::Not(why) => {
                words.push(format!("files stay unchanged: {why}"));
                None
            }
        };
        let now = self.clock.now_ms();
        let fork = if what.takes_conversation() {
            self.ensure_idle(thread, sink).await?;
            Some(self.fork_at(thread, Some(keep), true, now).await?)
        } else {
            None
        };
        let place = message
            .as_deref()
            .map_or_else(|| "an earlier step".to_owned(), |message| format!("“{}”", short(message)));
        let did = did(what, plan.as_ref());
        let record = WentBackRecord {
            n: 0,
            thread_id: fork.as_ref().map_or_else(|| thread.clone(), |fork| fork.copy.id.clone()),
            from_thread: fork.as_ref().map(|fork| fork.from.clone()),
            root: plan.as_ref().and(self.snapshots.as_ref()).map(crate::contract::snapshot::Snapshots::root),
            tree: plan.as_ref().map(|plan| plan.now.clone()),
            created_at: now,
            words: format!("rewound {did} to before {place}"),
        };
        let target = record.thread_id.clone();
        words.insert(0, format!("{}; /rewind can undo this", record.words));
        self.store.go_back(fork, Some(record)).await?;
        let failed = self.restore(plan).await?;
        let text = message.filter(|_| what.takes_conversation());
        Ok(Rewound { thread: target, text, words: words.join("; "), failed })
    }

    async fn undo_back(
        &self,
        thread: &ThreadId,
        what: RewindTarget,
        sink: Arc<dyn EventSink>,
    ) -> Result<Rewound, AppError> {
        let went = self.last_back(thread).await?;
        let plan = match self.files_before(&went) {
            _ if !what.takes_files() => None,
            Files::To(tree, _) => Some(self.plan(tree).await?),
            Files::Same => None,
            Files::Not(why) => return Err(why.into()),
        };
        let other = went.from_thread.clone().filter(|_| what.takes_conversation());
        if let Some(other) = &other {
            if self.store.load_thread(other).await?.is_none() {
                return Err(format!("the conversation to return to was deleted: {other}").into());
            }
            self.ensure_idle(thread, sink).await?;
        }
        let now = self.clock.now_ms();
        let record = WentBackRecord {
            n: 0,
            thread_id: other.clone().unwrap_or_else(|| thread.clone()),
            from_thread: other.as_ref().map(|_| thread.clone()),
            root: plan.as_ref().and(went.root.clone()),
            tree: plan.as_ref().map(|plan| plan.now.clone()),
            created_at: now,
            words: format!("restored {}", did(what, plan.as_ref())),
        };
        let target = record.thread_id.clone();
        let words = format!("{}; /rewind can undo this too", record.words);
        self.store.go_back(None, Some(record)).await?;
        if let Some(other) = &other {
            self.store.set_left(other, None).await?;
            self.store.set_left(thread, Some(other)).await?;
            self.store.touch(other, now).await?;
        }
        let failed = self.restore(plan).await?;
        Ok(Rewound { thread: target, text: None, words, failed })
    }

    async fn restore(&self, plan: Option<RestorePlan>) -> Result<Vec<String>, AppError> {
        let Some(plan) = plan else { return Ok(Vec::new()) };
        let own = self.own_snapshots()?;
        let restored: Restored = tokio::task::spawn_blocking(move || own.restore(&plan)).await?;
        Ok(restored.failed.into_iter().map(|(path, why)| format!("{path} was not restored: {why}")).collect())
    }

    async fn fork_at(
        &self,
        thread: &ThreadId,
        keep: Option<u64>,
        is_rewind: bool,
        now: u64,
    ) -> Result<ForkAt, AppError> {
        fork_at(&self.store, thread, keep, is_rewind, now).await
    }

    /// Forks a conversation: copies its start to a new one.
    pub(crate) async fn fork(&self, thread: &ThreadId, keep: Option<u64>) -> Result<Rewound, AppError> {
        let message = match keep {
            Some(keep) => self.message_after(thread, keep).await?,
            None => None,
        };
        let fork = self.fork_at(thread, keep, false, self.clock.now_ms()).await?;
        let id = fork.copy.id.clone();
        let title = self.store.load_thread(thread).await?.map(|record| record.title).unwrap_or_default();
        let name = if title.is_empty() {
            String::new()
        } else {
            format!(" of “{}”", crate::contract::display::visible_line(&title))
        };
        let words = format!("fork{name} up to message {}; the original stays unchanged", fork.keep);
        self.store.go_back(Some(fork), None).await?;
        Ok(Rewound { thread: id, text: message, words, failed: Vec::new() })
    }

    /// Returns the differences from the state before the first step of a conversation that may have changed
    /// files.
    pub(crate) async fn changes(&self, thread: &ThreadId, wanted: &str) -> Result<Changes, AppError> {
        let kept = self.store.snapshots(thread).await?;
        let own = self.own_snapshots()?;
        let first = match kept.iter().find(|snapshot| snapshot.tree.is_some()) {
            // Merged with later snapshots if it contains only some files.
            Some(first) => self.store.snapshot_behind(thread, first.seq.saturating_sub(1)).await?,
            None => None,
        };
        let Some(first) = first else {
            let refused = kept.into_iter().next();
            return Err(match refused {
                Some(refused) => format!("no snapshot to compare with: {}", refused.note).into(),
                None => "no file changed in this conversation".into(),
            });
        };
        if first.root != crate::contract::snapshot::Snapshots::root(&own) {
            return Err(format!("the files are in {}; run aye there", first.root.display()).into());
        }
        let Some(tree) = first.tree else { return Err("no snapshot to compare with".into()) };
        let wanted = wanted.to_owned();
        let mut changes =
            tokio::task::spawn_blocking(move || own.changes_since(&tree, &wanted, SHOWN_FILES)).await??;
        let when = crate::commands::when(first.created_at);
        changes.notes.insert(0, format!("since {when}, before this conversation could change files"));
        Ok(changes)
    }
}

fn did(what: RewindTarget, plan: Option<&RestorePlan>) -> String {
    let files = plan.map(|plan| counted(plan.files.len(), "file"));
    match (what.takes_conversation(), files) {
        (true, Some(files)) => format!("the conversation and {files}"),
        (true, None) => "the conversation".to_owned(),
        (false, Some(files)) => files,
        (false, None) => "nothing".to_owned(),
    }
}

/// Prepares a copy of the start of a conversation.
async fn fork_at(
    store: &SharedStore,
    thread: &ThreadId,
    keep: Option<u64>,
    is_rewind: bool,
    now: u64,
) -> Result<ForkAt, AppError> {
    let record = store.load_thread(thread).await?.ok_or_else(|| format!("unknown thread {thread}"))?;
    if store.child(thread).await?.is_some() {
        return Err("a subagent's conversation cannot be forked; fork its parent".into());
    }
    let keep = if let Some(keep) = keep {
        keep
    } else {
        // All of it, without an unfinished step.
        let place = |messages: &[StoredMessage]| {
            points_of(messages).last().map(|point| point.keep + u64::from(point.is_message))
        };
        let (count, end) = store.messages_tail(thread, LISTED).await?;
        match place(&end) {
            None if count > end.len() as u64 => place(&store.load_messages(thread).await?),
            found => found,
        }
        .unwrap_or(0)
    };
    let copy = ThreadRecord {
        id: ThreadId::fresh(),
        title: String::new(),
        cwd: record.cwd,
        created_at: now,
        updated_at: now.max(record.updated_at + 1),
    };
    Ok(ForkAt { from: thread.clone(), keep, copy, is_rewind })
}

/// `aye threads fork`.
pub(crate) async fn fork_stored(
    store: &SharedStore,
    thread: &ThreadId,
    keep: Option<u64>,
    now: u64,
) -> Result<ThreadId, Failure> {
    let fork = fork_at(store, thread, keep, false, now).await.map_err(Failure::failed)?;
    let id = fork.copy.id.clone();
    store.go_back(Some(fork), None).await.map_err(Failure::failed)?;
    Ok(id)
}
