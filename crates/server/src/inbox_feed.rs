//! The pending questions as their watchers see them: read once for all watchers, and after a change only those of the
//! conversation that changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::record::SuspensionRecord;
use aye_core::contract::storage::{ChangeKind, StoreChange};
use aye_session::shown_hash;
use tokio::sync::{Mutex, broadcast};
use tokio_util::sync::CancellationToken;

use super::error::ApiError;

/// Events that a watcher may fall behind. One that falls behind further starts again with a new snapshot.
const BEHIND: usize = 1024;

/// Where the questions come from.
#[async_trait]
pub(super) trait QuestionSource: Send + Sync + 'static {
    /// The open questions that users answer, of one conversation or of all, oldest first.
    async fn open_questions(&self, thread: Option<&ThreadId>) -> Result<Vec<SuspensionRecord>, ApiError>;

    /// A question as watchers see it, as JSON.
    async fn shown(&self, record: &SuspensionRecord) -> Result<String, ApiError>;

    /// A question that is not open any more, as JSON.
    async fn shown_closed(&self, id: &SuspensionId) -> Result<String, ApiError>;
}

/// What a watcher receives after its snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum InboxEvent {
    /// A question was asked, or changed.
    Asked(Arc<str>),
    /// A question was answered, or closed otherwise.
    Closed(Arc<str>),
    /// The questions cannot be read.
    Failed,
}

/// The questions, for any number of watchers.
pub(super) struct InboxFeed {
    shown: Mutex<ShownQuestions>,
    events: broadcast::Sender<InboxEvent>,
}

#[derive(Default)]
struct ShownQuestions {
    /// Whether a task keeps them up to date.
    is_followed: bool,
    /// In the order in which they were asked.
    cards: BTreeMap<u64, ShownQuestion>,
    numbers: HashMap<SuspensionId, u64>,
    of_thread: HashMap<ThreadId, HashSet<SuspensionId>>,
    next: u64,
}

struct ShownQuestion {
    thread: ThreadId,
    hash: String,
    card: Arc<str>,
}

impl Default for InboxFeed {
    fn default() -> Self {
        Self { shown: Mutex::default(), events: broadcast::channel(BEHIND).0 }
    }
}

impl InboxFeed {
    /// Returns the questions as they are now and what happens from now on. The first watcher starts the task that follows
    /// the changes, which must have been subscribed to before; it ends some time after the last watcher.
    pub(super) async fn watch(
        self: &Arc<Self>,
        source: &Arc<impl QuestionSource>,
        changes: broadcast::Receiver<StoreChange>,
        closing: &CancellationToken,
    ) -> Result<(Vec<Arc<str>>, broadcast::Receiver<InboxEvent>), ApiError> {
        let mut shown = self.shown.lock().await;
        if !shown.is_followed {
            *shown = ShownQuestions::default();
            shown.refresh(&**source, None).await?;
            shown.is_followed = true;
            let (feed, source, closing) = (Arc::clone(self), Arc::clone(source), closing.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = feed.follow(&*source, changes) => {}
                    () = closing.cancelled() => {}
                }
            });
        }
        // Nothing is sent while the questions are locked.
        let events = self.events.subscribe();
        Ok((shown.cards.values().map(|question| Arc::clone(&question.card)).collect(), events))
    }

    async fn follow(&self, source: &impl QuestionSource, mut changes: broadcast::Receiver<StoreChange>) {
        loop {
            let mut changed = match changes.recv().await {
                Ok(change) => Changed::default().with(change),
                Err(broadcast::error::RecvError::Lagged(_)) => Changed::everything(),
                Err(broadcast::error::RecvError::Closed) => return,
            };
            // The same reads cover the changes that arrived in the meantime.
            loop {
                match changes.try_recv() {
                    Ok(change) => changed = changed.with(change),
                    Err(broadcast::error::TryRecvError::Lagged(_)) => changed = Changed::everything(),
                    Err(_) => break,
                }
            }
            let mut shown = self.shown.lock().await;
            if self.events.receiver_count() == 0 {
                *shown = ShownQuestions::default();
                return;
            }
            for thread in changed.parts() {
                match shown.refresh(source, thread.as_ref()).await {
                    Ok(events) => events.into_iter().for_each(|event| {
                        let _ = self.events.send(event);
                    }),
                    Err(error) => {
                        tracing::warn!(?error, "the inbox cannot be read");
                        *shown = ShownQuestions::default();
                        let _ = self.events.send(InboxEvent::Failed);
                        return;
                    }
                }
            }
        }
    }
}

/// The conversations whose questions may have changed.
#[derive(Default)]
struct Changed {
    everything: bool,
    threads: HashSet<ThreadId>,
}

impl Changed {
    fn everything() -> Self {
        Self { everything: true, threads: HashSet::new() }
    }

    fn with(mut self, change: StoreChange) -> Self {
        match change.kind {
            ChangeKind::Owner | ChangeKind::Queue | ChangeKind::Grant => {}
            ChangeKind::Run | ChangeKind::Decision | ChangeKind::Anything => match change.thread {
                Some(thread) => drop(self.threads.insert(thread)),
                None => self.everything = true,
            },
        }
        self
    }

    /// What has to be read: `None` for all questions.
    fn parts(self) -> Vec<Option<ThreadId>> {
        if self.everything { vec![None] } else { self.threads.into_iter().map(Some).collect() }
    }
}

impl ShownQuestions {
    /// Reads the questions of a conversation, or all, and returns what changed.
    async fn refresh(
        &mut self,
        source: &impl QuestionSource,
        thread: Option<&ThreadId>,
    ) -> Result<Vec<InboxEvent>, ApiError> {
        let open = source.open_questions(thread).await?;
        let mut gone: HashSet<SuspensionId> = match thread {
            Some(thread) => self.of_thread.get(thread).cloned().unwrap_or_default(),
            None => self.numbers.keys().cloned().collect(),
        };
        let mut events = Vec::new();
        for record in &open {
            gone.remove(&record.id);
            let hash = shown_hash(record);
            let known = self.numbers.get(&record.id).copied();
            if known.and_then(|n| self.cards.get(&n)).is_some_and(|shown| shown.hash == hash) {
                continue;
            }
            let card: Arc<str> = source.shown(record).await?.into();
            let n = known.unwrap_or(self.next);
            self.next = self.next.max(n + 1);
            self.numbers.insert(record.id.clone(), n);
            self.of_thread.entry(record.thread_id.clone()).or_default().insert(record.id.clone());
            let thread = record.thread_id.clone();
            self.cards.insert(n, ShownQuestion { thread, hash, card: Arc::clone(&card) });
            events.push(InboxEvent::Asked(card));
        }
        for id in gone {
            let closed = source.shown_closed(&id).await?;
            let card = self.numbers.remove(&id).and_then(|n| self.cards.remove(&n));
            if let Some(ShownQuestion { thread, .. }) = card
                && let Some(ids) = self.of_thread.get_mut(&thread)
            {
                ids.remove(&id);
                if ids.is_empty() {
                    self.of_thread.remove(&thread);
                }
            }
            events.push(InboxEvent::Closed(closed.into()));
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Lock;

    use super::*;
    use aye_core::contract::record::SuspensionStatus;
    use aye_core::contract::suspension::{
        ACTION_PERMISSION, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
    };
    use serde_json::json;

    /// Questions in memory; counts the rows that are read.
    #[derive(Default)]
    struct Rows {
        open: Lock<Vec<SuspensionRecord>>,
        read: Lock<usize>,
    }

    #[async_trait]
    impl QuestionSource for Rows {
        async fn open_questions(&self, thread: Option<&ThreadId>) -> Result<Vec<SuspensionRecord>, ApiError> {
            let mut open = self.open.lock().expect("a lock").clone();
            open.retain(|record| thread.is_none_or(|thread| *thread == record.thread_id));
            *self.read.lock().expect("a lock") += open.len();
            Ok(open)
        }

        async fn shown(&self, record: &SuspensionRecord) -> Result<String, ApiError> {
            Ok(record.id.to_string())
        }

        async fn shown_closed(&self, id: &SuspensionId) -> Result<String, ApiError> {
            Ok(id.to_string())
        }
    }

    fn question(id: &str, thread: &str) -> SuspensionRecord {
        let suspension = Suspension {
            id: id.into(),
            action: ACTION_PERMISSION.into(),
            message: "run it?".into(),
            parameters: json!({}),
            response_schema: None,
            expires_at: None,
        };
        let pending = PendingToolCall { id: "c1".into(), name: "Bash".into(), arguments: json!({}) };
        SuspensionRecord {
            id: id.into(),
            thread_id: thread.into(),
            run_id: "r1".into(),
            call_id: "c1".into(),
            ticket: SuspendTicket { suspension, pending, resume_mode: ToolCallResumeMode::ReplayToolCall },
            status: SuspensionStatus::Open,
            created_at: 1,
            decision: None,
            decided_by: None,
        }
    }

    fn change(thread: &str) -> StoreChange {
        StoreChange::of(ChangeKind::Decision, &thread.into())
    }

    #[tokio::test]
    async fn a_change_reads_one_conversation_once_for_all_watchers() {
        let rows = Arc::new(Rows::default());
        *rows.open.lock().expect("a lock") =
            (0..500).map(|n| question(&format!("q{n}"), &format!("t{n}"))).collect();
        let feed = Arc::new(InboxFeed::default());
        let (changes, _) = broadcast::channel(16);
        let closing = CancellationToken::new();
        let mut watchers = Vec::new();
        for _ in 0..20 {
            let (cards, events) = feed.watch(&rows, changes.subscribe(), &closing).await.expect("a snapshot");
            assert_eq!(cards.len(), 500);
            assert_eq!((&*cards[0], &*cards[499]), ("q0", "q499"), "in the order of asking");
            watchers.push(events);
        }
        assert_eq!(*rows.read.lock().expect("a lock"), 500, "the first one read for all");
        {
            let mut open = rows.open.lock().expect("a lock");
            open.retain(|record| record.id.as_str() != "q7");
            open.push(question("q500", "t8"));
        }
        changes.send(change("t7")).expect("a receiver");
        for events in &mut watchers {
            assert_eq!(events.recv().await.expect("an event"), InboxEvent::Closed("q7".into()));
        }
        changes.send(change("t8")).expect("a receiver");
        for events in &mut watchers {
            assert_eq!(events.recv().await.expect("an event"), InboxEvent::Asked("q500".into()));
        }
        changes.send(StoreChange::of(ChangeKind::Owner, &"t9".into())).expect("a receiver");
        changes.send(change("t9")).expect("a receiver");
        let (cards, _) = feed.watch(&rows, changes.subscribe(), &closing).await.expect("a snapshot");
        assert_eq!((cards.len(), &*cards[499]), (500, "q500"));
        assert!(*rows.read.lock().expect("a lock") <= 500 + 2 + 1, "only what changed");
        // Without watchers nobody reads, and the next one does not see what is old.
        drop(watchers);
        rows.open.lock().expect("a lock").clear();
        changes.send(change("t1")).expect("a receiver");
        while feed.shown.lock().await.is_followed {
            tokio::task::yield_now().await;
        }
        let (cards, _) = feed.watch(&rows, changes.subscribe(), &closing).await.expect("a snapshot");
        assert_eq!(cards.len(), 0);
    }

    #[tokio::test]
    async fn a_lost_change_is_found_by_reading_all() {
        let rows = Arc::new(Rows::default());
        let feed = Arc::new(InboxFeed::default());
        let (changes, _) = broadcast::channel(16);
        let closing = CancellationToken::new();
        let (_, mut events) = feed.watch(&rows, changes.subscribe(), &closing).await.expect("a snapshot");
        rows.open.lock().expect("a lock").push(question("q1", "t1"));
        changes.send(StoreChange::anything()).expect("a receiver");
        assert_eq!(events.recv().await.expect("an event"), InboxEvent::Asked("q1".into()));
    }
}
