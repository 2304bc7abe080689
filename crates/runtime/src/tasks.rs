//! Background children: no call waits for them, and their end reaches the parent as a message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::request::{AgentRunResult, RuntimeError};
use super::{AgentRuntime, UnknownPolicy, delegate};
use aye_core::contract::child::{ChildRecord, ChildStatus, TaskRecord};
use aye_core::contract::command::FROM_CHILD;
use aye_core::contract::event_sink::{EventSink, NullEventSink};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::Message;

/// The background tasks of this process.
pub(super) struct Tasks {
    running: Mutex<HashMap<ThreadId, JoinHandle<()>>>,
    changes: watch::Sender<u64>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { running: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Tasks {
    /// Publishes a change of the background tasks.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl AgentRuntime {
    /// Watches the children and background commands driven here: questions that children ask, their answers,
    /// and starts and ends.
    pub fn watch_children(&self) -> watch::Receiver<u64> {
        self.inner.shared.tasks.changes.subscribe()
    }

    pub(super) fn children_changed(&self) {
        self.inner.shared.tasks.changed();
    }

    /// The children below a thread, oldest first.
    ///
    /// # Errors
    /// [`RuntimeError::Store`].
    pub async fn tasks(&self, thread: &ThreadId) -> Result<Vec<TaskRecord>, RuntimeError> {
        Ok(self.inner.shared.store.tasks(thread).await?)
    }

    /// Drives a child in the background, unless this process already does. The child's end is reported to its
    /// parent.
    pub(super) fn spawn_task(&self, thread: &ThreadId) {
        let mut running = self.inner.shared.tasks.running.lock().expect("no panic while it is held");
        running.retain(|_, task| !task.is_finished());
        if running.contains_key(thread) {
            return;
        }
        let (runtime, own) = (self.clone(), thread.clone());
        let task = tokio::spawn(async move {
            let sink = Arc::new(NullEventSink);
            match runtime.drive_task(&own, sink, UnknownPolicy::Ask).await {
                Ok(_)
                | Err(RuntimeError::ThreadAlreadyRunning { .. } | RuntimeError::NothingToResume { .. }) => {}
                Err(error) => tracing::error!(thread = %own, %error, "a background task cannot resume"),
            }
            runtime.children_changed();
        });
        running.insert(thread.clone(), task);
    }

    /// Drives a child in the background until it is over or waits.
    pub(super) async fn drive_task(
        &self,
        thread: &ThreadId,
        sink: Arc<dyn EventSink>,
        unknown: UnknownPolicy,
    ) -> Result<AgentRunResult, RuntimeError> {
        let gone = || RuntimeError::NothingToResume { thread_id: thread.clone() };
        let child = self.inner.shared.store.child(thread).await?.filter(|child| child.background);
        let child = child.ok_or_else(gone)?;
        let result = match self.of_child(&child).await {
            Ok(runtime) => {
                let slot = runtime.enter(thread, &*sink).await;
                let lease_guard = runtime.take(thread, &*sink).await?;
                let served = runtime.serve_fenced(&child, slot, &lease_guard.lease, sink, unknown);
                let result = Box::pin(served).await;
                runtime.release(lease_guard).await;
                self.after_child(&child, result).await
            }
            Err(error) => Err(error),
        };
        let text = match &result {
            Ok(result) if result.termination == TerminationReason::Suspended => return Ok(result.clone()),
            Ok(result) => Ok(result),
            Err(
                error @ (RuntimeError::AgentNotFound { .. }
                | RuntimeError::ResolveFailed { .. }
                | RuntimeError::Damaged { .. }),
            ) => Err(error.to_string()),
            Err(_) => return result,
        };
        self.report_end(&child, text).await?;
        result
    }

    async fn report_end(
        &self,
        child: &ChildRecord,
        ended: Result<&AgentRunResult, String>,
    ) -> Result<(), RuntimeError> {
        let (status, mut words) = match &ended {
            Ok(result) => {
                let status = ChildStatus::of_end(&result.termination);
                let words = if status == ChildStatus::Completed {
                    result.response.clone()
                } else {
                    let why = format!("It did not finish: {}.", delegate::why_of(&result.termination));
                    super::result_text::failed_words(&why, &result.response)
                };
                (status, words)
            }
            Err(why) => (ChildStatus::Failed, format!("It could not run: {why}.")),
        };
        if let Some(host) = self.inner.shared.host_of(&child.agent) {
            words = super::result_text::of_another_agent(&child.agent, &host, words.trim());
        }
        let shared = &self.inner.shared;
        // The parent is charged with the message that brings the result.
        let run = shared.store.latest_run(&child.thread_id).await?;
        let spent = run.map(|run| run.spent).unwrap_or_default();
        let task = child.task_id();
        let text = format!(
            "[task {task}] The background subagent `{}` ended: {}.\n\n{}",
            child.agent,
            status.word(),
            words.trim()
        );
        let mut message = Message::user(text);
        message.metadata = Some(
            json!({ FROM_CHILD: {"task": task, "agent": child.agent, "status": status.word(), "thread_id": child.thread_id, "spent": spent} }),
        );
        let parent =
            shared.store.load_run(&child.parent_run).await?.map(|run| run.agent_id).unwrap_or_default();
        shared.store.queue_child_end(&child.thread_id, parent, vec![message], shared.clock.now_ms()).await?;
        Ok(())
    }

    /// Resumes the background children of a thread, and of those below it, where possible: children that
    /// never started, were left by a dead process, were answered, or whose end was not reported.
    ///
    /// # Errors
    /// [`RuntimeError::Store`].
    pub async fn supervise_tasks(&self, thread: &ThreadId) -> Result<(), RuntimeError> {
        let shared = &self.inner.shared;
        for task in self.tasks(thread).await? {
            if !task.child.background || task.child.told {
                continue;
            }
            let id = &task.child.thread_id;
            let waits = task.run.as_ref().is_some_and(|run| run.status == RunStatus::Waiting);
            let goes_on = if waits && task.waiting > 0 { shared.store.has_answers(id).await? } else { true };
            if goes_on && self.driven_elsewhere(id).await?.is_none() {
                self.spawn_task(id);
            }
        }
        Ok(())
    }

    /// Waits until no background task of a thread, or below it, is running in this process.
    pub async fn finish_tasks(&self, thread: &ThreadId) {
        loop {
            let task = {
                let mut running = self.inner.shared.tasks.running.lock().expect("no panic while it is held");
                let own = running.keys().find(|id| id.is_at_or_below(thread)).cloned();
                own.and_then(|id| running.remove(&id))
            };
            match task {
                Some(task) => {
                    let _ = task.await;
                }
                None => return,
            }
        }
    }

    /// Stops a child: an active child is asked to stop, in whichever process, a waiting one is closed with
    /// its questions. Its parent is notified, as of any end. Returns `false` if there was nothing to stop.
    ///
    /// # Errors
    /// [`RuntimeError`].
    pub async fn stop_task(&self, thread: &ThreadId) -> Result<bool, RuntimeError> {
        let shared = &self.inner.shared;
        let Some(child) = shared.store.child(thread).await? else { return Ok(false) };
        let run = shared.store.latest_run(thread).await?;
        if run.is_some_and(|run| run.status == RunStatus::Done) {
            return Ok(false);
        }
        shared.store.stop_child(thread).await?;
        if self.cancel(thread) {
            return Ok(true);
        }
        let slot = self.enter(thread, &NullEventSink).await;
        let lease_guard = match self.acquire(thread).await {
            // That process receives the request.
            Err(RuntimeError::ThreadAlreadyRunning { .. }) => return Ok(true),
            other => other?,
        };
        let unfinished = self.unfinished(thread).await?.is_some();
        let ended = if unfinished {
            Box::pin(self.cancel_fenced(thread, slot, &lease_guard.lease, Arc::new(NullEventSink), false))
                .await
        } else {
            Ok(false)
        };
        self.release(lease_guard).await;
        let ended = ended?;
        if ended && child.background {
            self.spawn_task(thread);
            self.finish_tasks(thread).await;
        } else if ended {
            self.answer_for(&child).await?;
            self.children_changed();
        }
        Ok(ended)
    }
}
