//! Messages that wait behind what a conversation does: put there with `--keep-waiting`, begun behind a run that ended.

use std::sync::Arc;

use serde_json::json;

use super::{Format, Printer, exit, note};
use crate::contract::display::{escape_json, visible_line};
use crate::contract::event_sink::EventSink;
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::record::{QueuedMessage, SuspensionRecord};
use crate::runtime::{AgentRunResult, AgentRuntime, RunRequest, RuntimeError};

/// A message that could not begin yet.
pub(super) struct Behind {
    message: QueuedMessage,
    /// The questions it waits for.
    waiting: Vec<SuspensionRecord>,
    /// The process that is awake on the conversation.
    driver: Option<u32>,
}

/// Queues what is to be said. `None`: nothing is in its way, and it begins when the conversation is gone on with.
pub(super) async fn put_behind(
    runtime: &AgentRuntime,
    request: RunRequest,
) -> Result<Option<Behind>, RuntimeError> {
    let thread = request.thread_id;
    let message = runtime.enqueue(&thread, request.messages).await?;
    let waiting = runtime.waiting(&thread).await?;
    let driver = runtime.driver_elsewhere(&thread).await?;
    Ok((!waiting.is_empty() || driver.is_some()).then_some(Behind { message, waiting, driver }))
}

/// Says that a message is queued, and behind what.
pub(super) fn tell(printer: &Printer, behind: &Behind) -> u8 {
    let thread = &behind.message.thread_id;
    let reason = match (behind.waiting.len(), behind.driver) {
        (0, Some(pid)) => format!("behind the run of process {pid}"),
        (1, _) => "behind 1 question".to_owned(),
        (n, _) => format!("behind {n} questions"),
    };
    note(&format!("queued {reason} of conversation {thread}"));
    for suspension in &behind.waiting {
        let pending = &suspension.ticket.pending;
        note(&format!(
            "waiting for a decision: {} ({} {})",
            suspension.id,
            visible_line(&pending.name),
            visible_line(&pending.arguments.to_string())
        ));
    }
    if !behind.waiting.is_empty() {
        note(&format!(
            "answer with: aye approvals approve ID | deny ID; then go on with: aye -r {thread} -p"
        ));
    }
    if printer.format == Format::Json {
        let object = json!({
            "type": "result",
            "status": "queued",
            "thread_id": thread,
            "queued": behind.message.id,
            "driver": behind.driver,
            "waiting": behind.waiting,
            "exit": exit::WAITING,
        });
        printer.put(&format!("{}\n", escape_json(&object.to_string())));
    }
    exit::WAITING
}

/// Behind a run that went well, or when there was none to go on with: begins what is queued, one after the other.
/// Each result that is not the last is told by `between`.
pub(super) async fn and_then(
    runtime: &AgentRuntime,
    thread: &ThreadId,
    first: Result<AgentRunResult, RuntimeError>,
    sink: &Arc<impl EventSink + 'static>,
    between: impl Fn(&AgentRunResult),
) -> Result<AgentRunResult, RuntimeError> {
    let mut last = first;
    loop {
        let goes_on = match &last {
            Ok(result) => matches!(
                result.termination,
                TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested
            ),
            Err(error) => matches!(error, RuntimeError::NothingToResume { .. }),
        };
        if !goes_on {
            return last;
        }
        let Some(next) = runtime.queued(thread).await?.into_iter().next() else { return last };
        let sink: Arc<dyn EventSink> = Arc::clone(sink) as Arc<dyn EventSink>;
        match runtime.run_queued(next, sink).await {
            // Somebody else began it, or it was taken back.
            Err(RuntimeError::NotQueued { .. }) => {}
            // Another process is awake now, or a question waits: it is their matter when the rest begins.
            Err(RuntimeError::ThreadAlreadyRunning { .. } | RuntimeError::NotFree { .. }) if last.is_ok() => {
                return last;
            }
            next => {
                if let Ok(result) = &last {
                    between(result);
                }
                last = next;
            }
        }
    }
}
