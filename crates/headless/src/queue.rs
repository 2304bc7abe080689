//! Messages that wait behind what a conversation does: put there with `--keep-waiting`, begun behind a run that ended.

use serde_json::json;

use super::ask::{HeadlessSession, SessionResult};
use super::question::QuestionView;
use super::{Job, Printer, exit, note};
use aye_core::contract::display::visible_line;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::record::{QueuedMessage, SuspensionRecord};
use aye_runtime::{AgentRuntime, RunRequest, RuntimeError};

/// A message that could not begin yet.
pub(super) struct DeferredMessage {
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
) -> Result<Option<DeferredMessage>, RuntimeError> {
    let thread = request.thread_id;
    let message = runtime.enqueue(&thread, request.messages).await?;
    let waiting = runtime.waiting(&thread).await?;
    let driver = runtime.driver_elsewhere(&thread).await?;
    Ok((!waiting.is_empty() || driver.is_some()).then_some(DeferredMessage { message, waiting, driver }))
}

/// Says that a message is queued, and behind what.
pub(super) fn tell(printer: &Printer, behind: &DeferredMessage) -> u8 {
    let thread = &behind.message.thread_id;
    let reason = match (behind.waiting.len(), behind.driver) {
        (0, Some(pid)) => format!("after the run of process {pid}"),
        (1, _) => "after 1 question".to_owned(),
        (n, _) => format!("after {n} questions"),
    };
    note(&format!("queued {reason} of conversation {thread}"));
    for question in &behind.waiting {
        note(&QuestionView::of(question).lines());
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

/// Does the job, and behind one that went well, or when there was nothing to go on with, begins what is queued, one
/// message after the other. Each result that is not the last is told by `between`.
pub(super) async fn attend<'a>(
    runtime: &AgentRuntime,
    thread: &ThreadId,
    job: Job,
    desk: impl Fn() -> HeadlessSession<'a>,
    between: impl Fn(&SessionResult),
) -> Result<SessionResult, RuntimeError> {
    let mut last = desk().attend(job).await;
    loop {
        let goes_on = match &last {
            Ok(done) => matches!(
                done.result.termination,
                TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested
            ),
            Err(error) => matches!(error, RuntimeError::NothingToResume { .. }),
        };
        if !goes_on {
            return last;
        }
        // What works in the background says so by a message when it is done.
        runtime.mind_tasks(thread).await?;
        runtime.finish_tasks(thread).await;
        let Some(next) = runtime.next_wanted(thread).await? else {
            for task in
                runtime.tasks(thread).await?.iter().filter(|task| task.child.background && task.waiting > 0)
            {
                let (id, agent) = (task.child.task_id(), visible_line(&task.child.agent));
                note(&format!("task {id} ({agent}) waits for a decision: aye inbox"));
            }
            return last;
        };
        match desk().attend(Job::Run(RunRequest::queued(next))).await {
            // Somebody else began it, or it was taken back.
            Err(RuntimeError::NotQueued { .. }) => {}
            // Another process is awake now, or a question waits: it is their matter when the rest begins.
            Err(RuntimeError::ThreadAlreadyRunning { .. } | RuntimeError::NotFree { .. }) if last.is_ok() => {
                return last;
            }
            Ok(mut done) => {
                if let Ok(before) = last {
                    between(&before);
                    // What became of questions counts for the whole job.
                    done.denied.splice(0..0, before.denied);
                    done.result.expired.splice(0..0, before.result.expired);
                }
                last = Ok(done);
            }
            Err(error) => {
                if let Ok(before) = &last {
                    between(before);
                }
                return Err(error);
            }
        }
    }
}
