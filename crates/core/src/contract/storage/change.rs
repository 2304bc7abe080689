//! Notices of commits, for the other users of a store.

use async_trait::async_trait;

use crate::contract::ids::ThreadId;

/// What kind of thing was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A run moved on: messages, questions, results, its end.
    Run,
    /// A question was answered, or its time ran out.
    Decision,
    /// Somebody began or ceased to drive a thread.
    Owner,
    /// A message was queued, or taken back.
    Queue,
    /// A grant was given or taken back.
    Grant,
    /// Messages may have been lost: look at everything.
    Anything,
}

/// Something was committed by another handle than one's own: look at the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreChange {
    /// What kind of thing.
    pub kind: ChangeKind,
    /// The conversation, when it is about one.
    pub thread: Option<ThreadId>,
}

impl StoreChange {
    /// Look at everything.
    pub fn anything() -> StoreChange {
        StoreChange { kind: ChangeKind::Anything, thread: None }
    }

    /// One about this conversation.
    pub fn of(kind: ChangeKind, thread: &ThreadId) -> StoreChange {
        StoreChange { kind, thread: Some(thread.clone()) }
    }

    /// Whether the change may concern this conversation or one of its children.
    pub fn concerns(&self, thread: &ThreadId) -> bool {
        self.thread.as_ref().is_none_or(|named| named.is_at_or_below(thread))
    }
}

/// Reports what others commit, as long as it lives.
#[async_trait]
pub trait ChangeFeed: Send {
    /// Waits for the next change.
    async fn next(&mut self) -> StoreChange;

    /// As [`ChangeFeed::next`], for somebody who waits for a change. A feed that can lose one returns
    /// [`StoreChange::anything`] now and then.
    async fn next_or_check(&mut self) -> StoreChange {
        self.next().await
    }
}
