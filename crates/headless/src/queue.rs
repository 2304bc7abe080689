//! Messages queued after a conversation's current work: added with `--keep-waiting`, started after a run has
//! ended.

use serde_json::json;

use super::question::QuestionView;
use super::{Printer, exit, note};
use aye_core::contract::record::{QueuedMessage, SuspensionRecord};
use aye_runtime::{AgentRuntime, RunRequest, RuntimeError};

/// A message that could not start yet.
pub(super) struct DeferredMessage {
    message: QueuedMessage,
    /// The questions it waits for.
    waiting: Vec<SuspensionRecord>,
    /// The process that is active on the conversation.
    driver: Option<u32>,
}

/// Queues the message of a request. Returns `None` if nothing blocks the message: it starts when the
/// conversation is resumed.
pub(super) async fn enqueue_message(
    runtime: &AgentRuntime,
    request: RunRequest,
) -> Result<Option<DeferredMessage>, RuntimeError> {
    let thread = request.thread_id;
    let message = runtime.enqueue(&thread, request.messages).await?;
    let waiting = runtime.waiting(&thread).await?;
    let driver = runtime.driver_elsewhere(&thread).await?;
    Ok((!waiting.is_empty() || driver.is_some()).then_some(DeferredMessage { message, waiting, driver }))
}

/// Reports that a message is queued, and after what.
pub(super) fn report_queued(printer: &Printer, behind: &DeferredMessage) -> u8 {
    let thread = &behind.message.thread_id;
    let reason = match (behind.waiting.len(), behind.driver) {
        (0, Some(pid)) => format!("after the run of process {pid}"),
        (1, _) => "after 1 question".to_owned(),
        (n, _) => format!("after {n} questions"),
    };
    note(&format!("queued {reason} of conversation {thread}"));
    for question in &behind.waiting {
        note(&QuestionView::of(question).lines(printer.clock.now_ms()));
    }
    if !behind.waiting.is_empty() {
        note(&format!("then resume with: aye -r {thread} -p"));
    }
    printer.put_result(json!({
        "type": "result",
        "status": "queued",
        "thread_id": thread,
        "queued": behind.message.id,
        "driver": behind.driver,
        "waiting": behind.waiting.iter().map(|question| QuestionView::of(question).object()).collect::<Vec<_>>(),
        "exit": exit::WAITING,
    }));
    exit::WAITING
}
