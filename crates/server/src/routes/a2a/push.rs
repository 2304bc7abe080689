//! Push notifications of A2A: other agents register a URL for a task, which is notified when the task needs
//! input or is done.
//!
//! The current task is a message in the outbox, one for each point at which the task stopped: what was sent
//! before a crash is not sent again, and what was not is sent by the next server.

use std::sync::Arc;

use axum::http::StatusCode;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::record::RunRecord;
use serde_json::{Value, json};

use super::error::A2aError;
use crate::error::ApiError;
use crate::host::PushHost;
use crate::hub::Hub;
use crate::push::push_task_state;
use crate::push_config::{A2aAuthentication, A2aPushConfig};

/// Addresses that one task may have.
const MAX_CONFIGS: usize = 16;

/// A request about the push notification configs of a task.
#[derive(Clone, Copy)]
pub(super) enum PushOperation<'a> {
    Create,
    List,
    Get(&'a str),
    Delete(&'a str),
}

fn no_config(id: &str) -> A2aError {
    let shown: String = id.chars().take(80).collect();
    let message = format!("the task has no push notification config `{shown}`");
    A2aError::new(StatusCode::NOT_FOUND, "TASK_NOT_FOUND", message)
}

/// Returns what sends push notifications here.
pub(super) fn host(hub: &Hub) -> Result<&dyn PushHost, A2aError> {
    let message = "this server sends no push notifications; subscribe to the task instead";
    hub.program
        .pushes()
        .ok_or_else(|| A2aError::new(StatusCode::BAD_REQUEST, "PUSH_NOTIFICATION_NOT_SUPPORTED", message))
}

/// Keeps an address of a task.
pub(super) async fn add(
    hub: &Arc<Hub>,
    thread: &ThreadId,
    run: &RunId,
    given: A2aPushConfig,
) -> Result<A2aPushConfig, A2aError> {
    host(hub)?.checked_push(&given.url)?;
    let is_word = |text: &str| text.len() <= 1024 && text.bytes().all(|b| b.is_ascii_graphic());
    let is_header =
        |text: &str| text.len() <= 4096 && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if !is_word(&given.id) || given.id.len() > 128 {
        return Err(ApiError::field("id", "must be up to 128 printable characters without blanks").into());
    }
    if !is_word(&given.token) {
        return Err(ApiError::field("token", "must be up to 1024 printable characters without blanks").into());
    }
    if let Some(A2aAuthentication { scheme, credentials }) = &given.authentication
        && (scheme.is_empty() || !is_word(scheme) || !is_header(credentials))
    {
        return Err(ApiError::field("authentication", "must be a scheme and its credentials").into());
    }
    let known = host(hub)?.pushes_of_run(run).await?;
    let id = if given.id.is_empty() { RunId::fresh().to_string() } else { given.id };
    if known.len() >= MAX_CONFIGS && known.iter().all(|config| config.id != id) {
        let message = format!("a task has at most {MAX_CONFIGS} push notification configs");
        return Err(A2aError::new(StatusCode::BAD_REQUEST, "INVALID_PARAMS", message));
    }
    let config = A2aPushConfig { id, task_id: run.to_string(), ..given };
    host(hub)?.keep_push(thread, run, &config).await?;
    hub.track_pushes(thread);
    // The task may have stopped before the config was added.
    push_task_state(hub.store(), host(hub)?, thread).await;
    Ok(config)
}

pub(super) async fn serve(
    hub: &Arc<Hub>,
    run: &RunRecord,
    operation: PushOperation<'_>,
    body: &[u8],
) -> Result<Value, A2aError> {
    Ok(match operation {
        PushOperation::Create => {
            let given: A2aPushConfig =
                serde_json::from_slice(body).map_err(|error| ApiError::field("url", error.to_string()))?;
            if !given.task_id.is_empty() && given.task_id != run.id.as_str() {
                return Err(ApiError::field("taskId", "the path names another task").into());
            }
            json!(add(hub, &run.thread_id, &run.id, given).await?)
        }
        PushOperation::List => {
            let configs = host(hub)?.pushes_of_run(&run.id).await?;
            json!({ "configs": configs, "nextPageToken": "" })
        }
        PushOperation::Get(id) => {
            let configs = host(hub)?.pushes_of_run(&run.id).await?;
            let found = configs.into_iter().find(|config| config.id == id).ok_or_else(|| no_config(id))?;
            json!(found)
        }
        PushOperation::Delete(id) => {
            // Deleting a missing config is not an error: the caller may have lost the first reply.
            host(hub)?.remove_push(&run.id, id).await?;
            json!({})
        }
    })
}
