//! Threads that calls of other threads started.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::InMemoryStore;
use aye_core::contract::child::{ChildRecord, TaskRecord, TaskRun};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobOrigin};
use aye_core::contract::message::Message;
use aye_core::contract::record::{SuspensionRecord, SuspensionStatus, ThreadRecord};
use aye_core::contract::storage::{
    ChangeKind, ChildStore, DecisionStore as _, RunStore as _, StoreError, SuspensionFilter,
};

#[async_trait]
impl ChildStore for InMemoryStore {
    async fn create_child(
        &self,
        child: ChildRecord,
        title: String,
        cwd: PathBuf,
    ) -> Result<ChildRecord, StoreError> {
        let parent = child.parent_thread.clone();
        let child = self.write(|rows| {
            let exists = || StoreError::Exists { what: format!("thread {}", child.thread_id) };
            if let Some(known) = rows.child_mut(&child.thread_id) {
                let is_same = known.parent_run == child.parent_run && known.parent_call == child.parent_call;
                return if is_same { Ok(known.clone()) } else { Err(exists()) };
            }
            rows.thread_mut(&child.parent_thread)?;
            let is_same_call = |known: &Arc<ChildRecord>| {
                known.parent_run == child.parent_run && known.parent_call == child.parent_call
            };
            if rows.threads.contains_key(&child.thread_id) || rows.children.iter().any(is_same_call) {
                return Err(exists());
            }
            let (id, at) = (child.thread_id.clone(), child.created_at);
            rows.ensure_thread(ThreadRecord { id, title, cwd, created_at: at, updated_at: at })?;
            rows.children.push(Arc::new(ChildRecord { told: false, stop: false, ..child.clone() }));
            Ok(child)
        })?;
        self.publish_change(ChangeKind::Run, &parent);
        Ok(child)
    }

    async fn child(&self, thread: &ThreadId) -> Result<Option<ChildRecord>, StoreError> {
        self.read(|rows| {
            let child = rows.children.iter().find(|child| child.thread_id == *thread);
            child.map(|child| ChildRecord::clone(child))
        })
    }

    async fn children(&self, thread: &ThreadId) -> Result<Vec<ChildRecord>, StoreError> {
        self.read(|rows| {
            let below = rows.below(thread);
            let children = rows.children.iter().filter(|child| below.contains(&&child.thread_id));
            children.map(|child| ChildRecord::clone(child)).collect()
        })
    }

    async fn stop_child(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        let found = self.write(|rows| Ok(rows.child_mut(thread).map(|child| child.stop = true).is_some()))?;
        if found {
            self.publish_change(ChangeKind::Decision, thread);
        }
        Ok(found)
    }

    async fn queue_child_end(
        &self,
        thread: &ThreadId,
        agent: String,
        messages: Vec<Message>,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let parent = self.write(|rows| {
            let Some(child) = rows.child_mut(thread).filter(|child| child.background && !child.told) else {
                return Ok(None);
            };
            child.told = true;
            let parent = child.parent_thread.clone();
            let mut job = MailboxJob::new(parent.clone(), messages, now_ms);
            job.origin = MailboxJobOrigin::Internal;
            job.agent_id = agent;
            job.sender_id = Some(thread.to_string());
            rows.enqueue(job)?;
            Ok(Some(parent))
        })?;
        if let Some(parent) = &parent {
            self.publish_change(ChangeKind::Queue, parent);
        }
        Ok(parent.is_some())
    }

    async fn driven_with(&self, thread: &ThreadId) -> Result<ThreadId, StoreError> {
        let mut thread = thread.clone();
        while let Some(child) = self.child(&thread).await?.filter(|child| !child.background) {
            thread = child.parent_thread;
        }
        Ok(thread)
    }

    async fn tasks(&self, thread: &ThreadId) -> Result<Vec<TaskRecord>, StoreError> {
        let mut tasks = Vec::new();
        for child in self.children(thread).await? {
            let run = self.latest_run(&child.thread_id).await?.map(TaskRun::from);
            let waiting = self.waiting_below(&child.thread_id).await?.len() as u64;
            tasks.push(TaskRecord { child, run, waiting });
        }
        Ok(tasks)
    }

    async fn waiting_below(&self, thread: &ThreadId) -> Result<Vec<SuspensionRecord>, StoreError> {
        let mut found = Vec::new();
        for thread in served(thread, &self.children(thread).await?) {
            let status = Some(SuspensionStatus::Open);
            let filter = SuspensionFilter { thread: Some(thread), status, ..SuspensionFilter::default() };
            found.extend(self.suspensions(filter).await?.into_iter().filter(|row| !row.ticket.is_served()));
        }
        found.sort_by_key(|row| row.created_at);
        Ok(found)
    }

    async fn has_answers(&self, thread: &ThreadId) -> Result<bool, StoreError> {
        for thread in served(thread, &self.children(thread).await?) {
            let latest = self.latest_run(&thread).await?;
            let Some(run) = latest.filter(|run| run.status != RunStatus::Done) else { continue };
            let status = Some(SuspensionStatus::Decided);
            let filter = SuspensionFilter { run: Some(run.id), status, ..SuspensionFilter::default() };
            if !self.suspensions(filter).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn answered_threads(&self) -> Result<Vec<ThreadId>, StoreError> {
        let mut found = Vec::new();
        for run in self.unfinished_runs().await? {
            let filter = SuspensionFilter { run: Some(run.id), ..SuspensionFilter::default() };
            let is_closed = |row: &SuspensionRecord| {
                matches!(row.status, SuspensionStatus::Decided | SuspensionStatus::Expired)
            };
            if self.suspensions(filter).await?.iter().any(is_closed)
                || self.child(&run.thread_id).await?.is_some_and(|child| child.stop)
            {
                found.push(run.thread_id);
            }
        }
        Ok(found)
    }
}

/// The thread, and those below it that calls wait for, all the way down.
fn served(thread: &ThreadId, children: &[ChildRecord]) -> Vec<ThreadId> {
    let mut threads = vec![thread.clone()];
    let mut at = 0;
    while let Some(parent) = threads.get(at).cloned() {
        let waited_for = children.iter().filter(|child| child.parent_thread == parent && !child.background);
        threads.extend(waited_for.map(|child| child.thread_id.clone()));
        at += 1;
    }
    threads
}
