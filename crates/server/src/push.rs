//! Sends tasks to the addresses that other agents registered for them.
//!
//! The current task is a message in the outbox, one for each point at which the task stopped: what was sent
//! before a crash is not sent again, and what was not is sent by the next server.

use std::sync::Arc;

use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::RunRecord;
use aye_core::contract::storage::ThreadRunStore;
use aye_encode::a2a::{A2aTask, task};
use serde_json::json;

use crate::error::ApiError;
use crate::host::PushHost;
use crate::push_config::PUSH_DONE;

/// Writes a message for each address of a conversation whose task needs input or is over, once for each time.
pub(crate) async fn push_task_state(
    store: &Arc<dyn ThreadRunStore>,
    pushes: &dyn PushHost,
    thread: &ThreadId,
) {
    if let Err(error) = queue_pushes(store, pushes, thread).await {
        tracing::warn!(%thread, error = error.message(), "push notifications are not written");
    }
}

async fn queue_pushes(
    store: &Arc<dyn ThreadRunStore>,
    pushes: &dyn PushHost,
    thread: &ThreadId,
) -> Result<(), ApiError> {
    for to in pushes.pushes_that_wait(Some(thread)).await? {
        // A run that is not stored yet starts in a moment.
        let Some(record) = store.load_run(&to.run).await? else { continue };
        let stop = match record.status {
            RunStatus::Running => None,
            RunStatus::Waiting => {
                let open = store.waiting_below(thread).await?;
                let ids: Vec<_> = open.iter().map(|question| question.id.as_str()).collect();
                // Without pending questions the answers are stored and the run resumes in a moment.
                (!ids.is_empty()).then(|| ids.join(" "))
            }
            RunStatus::Done => Some(PUSH_DONE.to_owned()),
        };
        if let Some(stop) = stop {
            let body = json!({ "task": task_of_run(store, &record, None).await? });
            pushes.push(&to, &stop, body).await?;
        }
    }
    Ok(())
}

/// A run as a task.
pub(crate) async fn task_of_run(
    store: &Arc<dyn ThreadRunStore>,
    run: &RunRecord,
    history: Option<usize>,
) -> Result<A2aTask, ApiError> {
    let (_, messages) = store.messages_of_run(&run.thread_id, &run.id).await?;
    let open = store.waiting_below(&run.thread_id).await?;
    Ok(task(run, &messages, &open, history))
}
