//! The rows. A transaction shares the rows that it does not change with the version before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use aye_core::contract::audit::AuditRow;
use aye_core::contract::child::ChildRecord;
use aye_core::contract::command::CommandRecord;
use aye_core::contract::ids::{RunId, SuspensionId, ThreadId};
use aye_core::contract::mailbox::MailboxJob;
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::profile::ProfileEntry;
use aye_core::contract::record::{
    AttemptId, Fence, GrantRecord, IntentRecord, LeaseRecord, NamedBy, OutcomeRecord, Owner, RunRecord,
    StoredMessage, SuspensionRecord, ThreadRecord,
};
use aye_core::contract::storage::StoreError;
use aye_core::contract::summary::SummaryRecord;

/// Lists are in the order in which their rows were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) threads: BTreeMap<ThreadId, Arc<Conversation>>,
    pub(super) leases: BTreeMap<ThreadId, LeaseRow>,
    pub(super) children: Vec<Arc<ChildRecord>>,
    pub(super) runs: Vec<Arc<RunRecord>>,
    pub(super) intents: Vec<Arc<Execution>>,
    pub(super) commands: Vec<Arc<CommandRow>>,
    pub(super) suspensions: Vec<Arc<SuspensionRecord>>,
    pub(super) grants: Vec<Arc<StoredGrant>>,
    pub(super) audit: Vec<Arc<AuditRow>>,
    /// By conversation and name.
    pub(super) artifacts: BTreeMap<(ThreadId, String), Arc<Vec<u8>>>,
    pub(super) jobs: Vec<Arc<MailboxJob>>,
    pub(super) generations: BTreeMap<ThreadId, u64>,
    pub(super) images: BTreeMap<String, Arc<Vec<u8>>>,
    pub(super) profiles: BTreeMap<(String, String), Arc<ProfileEntry>>,
    /// The version of the profile value that was written last.
    pub(super) version: u64,
    /// The number of the job that was queued last.
    pub(super) job: u64,
    /// The number of the command that was started last.
    pub(super) command: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub(super) record: ThreadRecord,
    pub(super) named_by: NamedBy,
    pub(super) messages: Vec<Arc<StoredMessage>>,
    pub(super) state: BTreeMap<String, Value>,
    pub(super) summaries: Vec<Arc<SummaryRecord>>,
    /// The starts of its requests, oldest first.
    pub(super) prefixes: Vec<Arc<PrefixRecord>>,
}

#[derive(Clone, Debug)]
pub(super) struct LeaseRow {
    pub(super) epoch: u64,
    /// `None`: released.
    pub(super) owner: Option<Owner>,
    pub(super) until: Option<u64>,
}

impl LeaseRow {
    /// The lease at a moment of the clock since the boot, unless it was released.
    pub(super) fn record(&self, now: u64) -> Option<LeaseRecord> {
        Some(LeaseRecord { owner: self.owner.clone()?, epoch: self.epoch, left: self.left(now) })
    }

    /// What is left of it; `None` is as long as its owner lives.
    pub(super) fn left(&self, now: u64) -> Option<Duration> {
        self.until.map(|until| Duration::from_millis(until.saturating_sub(now)))
    }
}

/// A call that was started.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    pub(super) intent: IntentRecord,
    pub(super) outcome: Option<OutcomeRecord>,
    pub(super) output: PrintedText,
}

/// A command that outlived its call.
#[derive(Clone, Debug)]
pub(super) struct CommandRow {
    pub(super) record: CommandRecord,
    /// The execution that it prints to.
    pub(super) intent: AttemptId,
    /// The number of bytes of output that the model has read.
    pub(super) seen: usize,
}

#[derive(Clone, Debug)]
pub(super) struct StoredGrant {
    pub(super) grant: GrantRecord,
    /// Its time was seen to be over.
    pub(super) is_over: bool,
}

/// The output of a call: its start and its end.
#[derive(Clone, Debug, Default)]
pub(super) struct PrintedText {
    head: String,
    tail: String,
    dropped: usize,
}

impl PrintedText {
    /// The number of bytes kept of the start, and of the end.
    const HALF: usize = 128 * 1024;

    pub(super) fn push(&mut self, chunk: &str) {
        let mut rest = chunk;
        if self.tail.is_empty() && self.dropped == 0 {
            let (head, after) = rest.split_at(rest.floor_char_boundary(Self::HALF - self.head.len()));
            self.head.push_str(head);
            rest = after;
        }
        self.tail.push_str(rest);
        if self.tail.len() > Self::HALF {
            let from = self.tail.ceil_char_boundary(self.tail.len() - Self::HALF);
            self.tail.drain(..from);
            self.dropped += from;
        }
    }

    /// Returns the output after the first `seen` bytes, and the total number of bytes.
    pub(super) fn since(&self, seen: usize) -> (String, usize) {
        let Self { head, tail, dropped } = self;
        let mut text = head[head.floor_char_boundary(seen)..].to_owned();
        let at = head.len() + dropped;
        if *dropped > 0 && at > seen {
            text.push_str(&left_out((*dropped).min(at - seen)));
        }
        text.push_str(&tail[tail.floor_char_boundary(seen.saturating_sub(at))..]);
        (text, seen.max(at + tail.len()))
    }

    pub(super) fn text(&self) -> String {
        self.since(0).0
    }
}

fn left_out(bytes: usize) -> String {
    format!("\n[... {bytes} bytes left out ...]\n")
}

impl Rows {
    /// The threads below a thread, oldest first. A child is written after its parent.
    pub(super) fn below<'a>(&'a self, thread: &'a ThreadId) -> Vec<&'a ThreadId> {
        let mut found = vec![thread];
        for child in &self.children {
            if found.contains(&&child.parent_thread) {
                found.push(&child.thread_id);
            }
        }
        found.split_off(1)
    }

    pub(super) fn thread_mut(&mut self, id: &ThreadId) -> Result<&mut Conversation, StoreError> {
        self.threads.get_mut(id).map(Arc::make_mut).ok_or_else(|| StoreError::NoThread(id.clone()))
    }

    pub(super) fn run(&self, id: &RunId) -> Option<&RunRecord> {
        self.runs.iter().find(|run| run.id == *id).map(|run| &**run)
    }

    pub(super) fn latest_run(&self, thread: &ThreadId) -> Option<&RunRecord> {
        self.runs.iter().rfind(|run| run.thread_id == *thread).map(|run| &**run)
    }

    pub(super) fn suspension(&self, id: &SuspensionId) -> Option<&SuspensionRecord> {
        self.suspensions.iter().find(|row| row.id == *id).map(|row| &**row)
    }

    pub(super) fn suspension_mut(&mut self, id: &SuspensionId) -> Option<&mut SuspensionRecord> {
        self.suspensions.iter_mut().find(|row| row.id == *id).map(Arc::make_mut)
    }

    /// Refuses a writer that lost its thread.
    pub(super) fn check(&self, fence: &Fence) -> Result<(), StoreError> {
        let is_held = self.leases.get(&fence.thread_id).is_some_and(|lease| lease.is_held_by(fence));
        if is_held { Ok(()) } else { Err(StoreError::Fenced { thread: fence.thread_id.clone() }) }
    }

    /// Gives up the right to write.
    pub(super) fn release(&mut self, fence: &Fence) {
        let held = self.leases.get_mut(&fence.thread_id).filter(|lease| lease.is_held_by(fence));
        if let Some(lease) = held {
            (lease.owner, lease.until) = (None, None);
        }
    }
}

impl LeaseRow {
    pub(super) fn is_held_by(&self, fence: &Fence) -> bool {
        self.epoch == fence.epoch && self.owner.as_ref().is_some_and(|owner| owner.token == fence.token)
    }
}
