//! Notices of commits, for the other users of a store.

use async_trait::async_trait;

use crate::contract::ids::ThreadId;

/// The kind of committed change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A run moved on: messages, questions, results, its end.
    Run,
    /// A question was answered, or its time ran out.
    Decision,
    /// A process started or stopped driving a thread.
    Owner,
    /// A message was queued, or withdrawn.
    Queue,
    /// A grant was made or revoked.
    Grant,
    /// Notifications may have been lost: check everything.
    Anything,
}

/// A commit by another handle, after which the store must be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreChange {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The conversation, when it is about one.
    pub thread: Option<ThreadId>,
}

impl StoreChange {
    /// Returns a change after which everything must be checked.
    pub fn anything() -> StoreChange {
        StoreChange { kind: ChangeKind::Anything, thread: None }
    }

    /// One about this conversation.
    pub fn of(kind: ChangeKind, thread: &ThreadId) -> StoreChange {
        StoreChange { kind, thread: Some(thread.clone()) }
    }

    /// Returns whether the change may concern this conversation or one of its children.
    pub fn concerns(&self, thread: &ThreadId) -> bool {
        self.thread.as_ref().is_none_or(|named| named.is_at_or_below(thread))
    }
}

/// Reports what others commit, as long as it lives.
#[async_trait]
pub trait ChangeFeed: Send {
    /// Waits for the next change.
    async fn next(&mut self) -> StoreChange;

    /// As [`ChangeFeed::next`], for callers that wait for a change. A feed that can lose changes returns
    /// [`StoreChange::anything`] now and then.
    async fn next_or_check(&mut self) -> StoreChange {
        self.next().await
    }

    /// Waits until something that concerns a conversation may have changed.
    async fn next_about(&mut self, thread: &ThreadId) {
        while !self.next_or_check().await.concerns(thread) {}
    }
}
