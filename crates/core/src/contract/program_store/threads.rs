//! Conversations as lists and front ends show them.

use crate::contract::child::TaskRecord;
use crate::contract::command::CommandRecord;
use crate::contract::record::{
    LeaseRecord, OpenIntent, QueuedMessage, RunRecord, StoredMessage, SuspensionRecord, ThreadRecord,
};
use crate::contract::summary::SummaryRecord;

/// The result of looking up a thread by an id prefix.
#[derive(Clone, Debug, PartialEq)]
pub enum ThreadLookup {
    /// Exactly this one.
    One(ThreadRecord),
    /// Nothing.
    None,
    /// Several, newest first, at most 20.
    Many(Vec<ThreadRecord>),
}

/// A conversation that contains a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// The conversation.
    pub thread: ThreadRecord,
    /// The text at its first match, with the text around it.
    pub around: String,
}

/// A thread read in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadView {
    /// The conversation.
    pub thread: ThreadRecord,
    /// The lease, with its owner, alive or not, and its end.
    pub lease: Option<LeaseRecord>,
    /// The messages after the requested position.
    pub messages: Vec<StoredMessage>,
    /// The total number of messages.
    pub total: u64,
    /// The latest run.
    pub run: Option<RunRecord>,
    /// The questions that wait for a user, oldest first, including those of the children.
    pub waiting: Vec<SuspensionRecord>,
    /// Answers that were not carried out yet, of the latest run and of the children that its calls wait for.
    pub decided: usize,
    /// The children below that are not over, oldest first.
    pub children: Vec<TaskRecord>,
    /// The commands in the background, of the children below too, whose end is not known, oldest first.
    pub commands: Vec<CommandRecord>,
    /// Executions of an unfinished latest run that were started and have no outcome yet.
    pub running: Vec<OpenIntent>,
    /// The messages that start runs once the thread is free.
    pub queued: Vec<QueuedMessage>,
    /// The newest summaries that replace older messages, oldest first.
    pub summaries: Vec<SummaryRecord>,
}

/// The part of a thread's messages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSelection {
    /// All.
    All,
    /// The messages after a position.
    Behind(u64),
    /// This many messages at the end.
    Last(usize),
}
