//! Tasks: runs, and messages that wait for the run before them.

use std::sync::Arc;

use axum::http::StatusCode;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{JobId, RunId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::mailbox::{MailboxJob, MailboxJobOrigin, MailboxJobStatus};
use aye_core::contract::message::Message;
use aye_core::contract::record::{RunRecord, SuspensionRecord, ThreadRecord};
use aye_core::contract::storage::{Slice, SuspensionFilter};
use aye_encode::a2a::{
    A2aConfiguration, A2aIntent, A2aMessage, A2aSendRequest, A2aTask, A2aTaskState, A2aTaskStatus, task,
};
use aye_runtime::RunRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::A2aError;
use super::push;
use crate::access::{Caller, TokenScope};
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::follow::Frame;
use crate::guard::demand;
use crate::hub::Hub;
use crate::push::task_of_run;
use crate::push_config::A2aPushConfig;
use crate::reading::RunReader;
use crate::routes::approvals;
use crate::routes::paging::{Paging, one_more};
use crate::routes::threads::thread_of;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TaskQuery {
    pub(super) history_length: Option<usize>,
    page_size: Option<u32>,
    page_token: Option<String>,
    context_id: Option<ThreadId>,
}

pub(super) async fn run_of(hub: &Hub, id: &str) -> Result<RunRecord, A2aError> {
    let run = hub.store().load_run(&RunId::from(id)).await.map_err(ApiError::from)?;
    run.ok_or_else(|| A2aError::no_task(id))
}

/// Maximum messages of a list that wait to become tasks.
const MAX_WAITING: usize = 200;

/// A task: a run, or a message that waits for the run before it.
pub(super) enum Task {
    Run(Box<RunRecord>),
    Job(Box<MailboxJob>),
}

pub(super) async fn task_of(hub: &Hub, id: &str) -> Result<Task, A2aError> {
    match hub.store().load_run(&RunId::from(id)).await.map_err(ApiError::from)? {
        Some(run) => Ok(Task::Run(Box::new(run))),
        None => Ok(Task::Job(Box::new(job_of(hub, id).await?.ok_or_else(|| A2aError::no_task(id))?))),
    }
}

/// Returns the message that waits to become a task.
pub(super) async fn job_of(hub: &Hub, id: &str) -> Result<Option<MailboxJob>, ApiError> {
    let mailboxes = hub.store().mailboxes()?;
    let job = mailboxes.load_job(&JobId::from(id)).await.map_err(ApiError::internal)?;
    Ok(job.filter(|job| job.wanted_run_id().is_some_and(|run| run.as_str() == id)))
}

/// A message that waits, as a task.
pub(super) fn submitted(job: &MailboxJob) -> A2aTask {
    let state = match job.status {
        MailboxJobStatus::Queued | MailboxJobStatus::Claimed | MailboxJobStatus::Accepted => {
            A2aTaskState::Submitted
        }
        MailboxJobStatus::Cancelled | MailboxJobStatus::Superseded => A2aTaskState::Canceled,
        MailboxJobStatus::DeadLetter => A2aTaskState::Failed,
    };
    A2aTask {
        id: job.job_id.to_string(),
        context_id: job.mailbox_id.to_string(),
        status: A2aTaskStatus { state, ..A2aTaskStatus::default() },
        ..A2aTask::default()
    }
}

/// The run that a message started or resumed.
pub(super) struct SentTask {
    pub(super) reader: RunReader,
    pub(super) thread: ThreadId,
    pub(super) run: RunId,
    returns_at_once: bool,
    pub(super) history: Option<usize>,
    /// The task as it was when a message came that had come before.
    pub(super) known: Option<RunRecord>,
}

impl SentTask {
    fn new(reader: RunReader, thread: ThreadId, run: RunId, request: &A2aSendRequest) -> Self {
        let A2aConfiguration { return_immediately, history_length, .. } = request.configuration;
        Self {
            reader,
            thread,
            run,
            returns_at_once: return_immediately,
            history: history_length,
            known: None,
        }
    }

    async fn task(&self, hub: &Hub) -> Result<A2aTask, ApiError> {
        if let Some(run) = hub.store().load_run(&self.run).await? {
            return task_of_run(hub.store(), &run, self.history).await;
        }
        if let Some(job) = job_of(hub, self.run.as_str()).await? {
            return Ok(submitted(&job));
        }
        // The run starts in a moment.
        Ok(task(&RunRecord::new(self.run.clone(), self.thread.clone(), "", "", now_ms()), &[], &[], None))
    }

    /// Waits until the run is over or needs input, or, if the caller does not wait, until the task can be found.
    pub(super) async fn wait(mut self, hub: &Hub) -> Result<A2aTask, A2aError> {
        let mut failed = None;
        let is_stored = task_of(hub, self.run.as_str()).await.is_ok();
        while !(self.returns_at_once && is_stored)
            && let Some(frame) = self.reader.next().await
        {
            if let Frame::Event { event, .. } = frame
                && let AgentEvent::RunFinish { termination: TerminationReason::Error(why), .. } = &*event
            {
                failed = Some(why.clone());
            }
            if self.returns_at_once {
                break;
            }
        }
        if let Some(why) = failed
            && task_of(hub, self.run.as_str()).await.is_err()
        {
            return Err(A2aError::new(StatusCode::BAD_REQUEST, "INVALID_PARAMS", why));
        }
        Ok(self.task(hub).await?)
    }
}

/// Handles a message: it starts a run or answers the questions of one.
pub(super) async fn send(
    hub: &Arc<Hub>,
    caller: &Caller,
    tenant: Option<&str>,
    body: &[u8],
) -> Result<SentTask, A2aError> {
    demand(caller, TokenScope::Chat)?;
    let request: A2aSendRequest =
        serde_json::from_slice(body).map_err(|error| ApiError::field("message", error.to_string()))?;
    let push: Option<A2aPushConfig> = match request.configuration.task_push_notification_config.clone() {
        Some(push) => Some(serde_json::from_value(push).map_err(|error| {
            ApiError::field("configuration.taskPushNotificationConfig", error.to_string())
        })?),
        None => None,
    };
    if let Some(push) = &push {
        push::host(hub)?.checked_push(&push.url)?;
    }
    let key = message_key(caller, tenant, &request);
    // One message at a time, so that a message and its repetition do not both start something.
    let _turn = hub.sending.lock().await;
    let turn = match repeated(hub, &request, &key).await? {
        Some(turn) => turn,
        None => started(hub, caller, tenant, request, &key).await?,
    };
    if let Some(mut push) = push {
        if push.id.is_empty() {
            push.id = key;
        }
        if push::host(hub)?.pushes_of_run(&turn.run).await?.iter().all(|known| known.id != push.id) {
            push::add(hub, &turn.thread, &turn.run, push).await?;
        }
    }
    Ok(turn)
}

/// Identifies a message: the same for each repetition by the same caller, whichever process receives it. The
/// content counts as well, so that a client that uses an id twice is not answered with another task.
fn message_key(caller: &Caller, tenant: Option<&str>, request: &A2aSendRequest) -> String {
    let A2aMessage { message_id, context_id, task_id, parts, .. } = &request.message;
    let tenant = tenant.unwrap_or(&request.tenant);
    let content = json!([caller.token, tenant, context_id, task_id, message_id, parts]).to_string();
    format!("a2a-{}", &sha256_hex(content)[..32])
}

/// Returns the task of a message that was received before, also by an earlier process.
async fn repeated(hub: &Arc<Hub>, request: &A2aSendRequest, key: &str) -> Result<Option<SentTask>, A2aError> {
    let message = &request.message;
    let run = match message.task_id.as_str() {
        "" => RunId::from(key),
        task if was_answered_by(hub, &run_of(hub, task).await?, key).await? => RunId::from(task),
        _ => return Ok(None),
    };
    let thread = if let Some(known) = hub.store().load_run(&run).await.map_err(ApiError::from)? {
        known.thread_id
    } else if let Some(job) = job_of(hub, run.as_str()).await? {
        job.mailbox_id
    } else {
        let thread = ThreadId::from(if message.context_id.is_empty() { key } else { &message.context_id });
        if !hub.is_accepted(&thread, &run) {
            return Ok(None);
        }
        thread
    };
    // The reader comes first, so that it sees the end of a run that is still active.
    let mut reader = RunReader::new(hub, &thread).await?.of(run.clone());
    let known = hub.store().load_run(&run).await.map_err(ApiError::from)?;
    reader = match &known {
        Some(known) => reader.joining(known.status == RunStatus::Running),
        None => reader.queued(hub),
    };
    Ok(Some(SentTask { known, ..SentTask::new(reader, thread, run, request) }))
}

/// Whether a message answered a question of the task, or of one of its subagents.
async fn was_answered_by(hub: &Hub, run: &RunRecord, key: &str) -> Result<bool, ApiError> {
    let mut filters = vec![SuspensionFilter { run: Some(run.id.clone()), ..SuspensionFilter::default() }];
    let children = hub.store().children(&run.thread_id).await?;
    filters.extend(
        children
            .into_iter()
            .map(|child| SuspensionFilter { thread: Some(child.thread_id), ..SuspensionFilter::default() }),
    );
    for filter in filters {
        let asked = hub.store().suspensions(filter).await?;
        let mut decisions = asked.into_iter().filter_map(|question| question.decision);
        if decisions.any(|decision| decision.decision_id.as_str().starts_with(key)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Starts a run or answers the questions of one.
async fn started(
    hub: &Arc<Hub>,
    caller: &Caller,
    tenant: Option<&str>,
    request: A2aSendRequest,
    key: &str,
) -> Result<SentTask, A2aError> {
    let named = Some(request.message.task_id.as_str()).filter(|id| !id.is_empty());
    let known = match named {
        Some(id) => Some(run_of(hub, id).await?),
        None => None,
    };
    let context = Some(request.message.context_id.as_str()).filter(|id| !id.is_empty());
    // The ids of a conversation and a run that the message starts follow from it, so that its repetition finds them.
    let thread = match &known {
        Some(run) if context.is_some_and(|context| context != run.thread_id.as_str()) => {
            return Err(ApiError::field("contextId", "the task belongs to another context").into());
        }
        Some(run) => hub.thread(&run.thread_id).await?,
        None => thread_of(hub, context.or(Some(key))).await?,
    };
    let questions: Vec<SuspensionRecord> = match &known {
        Some(run) if run.status == RunStatus::Done => {
            return Err(A2aError::unsupported("the task has ended; send the message without a taskId"));
        }
        Some(run) => {
            let filter = SuspensionFilter { run: Some(run.id.clone()), ..SuspensionFilter::default() };
            let mut own = hub.store().suspensions(filter).await.map_err(ApiError::from)?;
            let below = hub.store().waiting_below(&thread.id).await.map_err(ApiError::from)?;
            own.extend(below.into_iter().filter(|question| question.thread_id != thread.id));
            own
        }
        None => Vec::new(),
    };
    let intent = request.intent(&questions).map_err(|error| ApiError::field(error.field, error.message))?;
    let mut reader = RunReader::new(hub, &thread.id).await?;
    let run = match (intent, known) {
        (A2aIntent::Answer(answers), Some(run)) => {
            approvals::decide_all_as(hub, caller, answers, key).await?;
            run.id
        }
        (A2aIntent::Say(_), Some(_)) => {
            return Err(A2aError::unsupported(
                "the task is still running; cancel it, or send without a taskId",
            ));
        }
        (A2aIntent::Answer(_), None) => {
            return Err(ApiError::field("message", "there is nothing to answer").into());
        }
        (A2aIntent::Say(content), None) => {
            let run = RunId::from(key);
            let tenant = tenant.or(Some(request.tenant.as_str())).filter(|tenant| !tenant.is_empty());
            let messages = vec![Message::user_with(content)];
            if hub.is_busy(&thread.id).await? {
                reader = reader.queued(hub);
                queue(hub, caller, &thread, messages, tenant, &run).await?;
            } else {
                let mut begin = RunRequest::new(thread.id.clone(), messages);
                begin.run_id = Some(run.clone());
                begin.agent_id = tenant.map(str::to_owned);
                begin.correlation_id.clone_from(&caller.correlation_id);
                hub.begin(&thread, begin).await?;
            }
            run
        }
    };
    Ok(SentTask::new(reader.of(run.clone()), thread.id, run, &request))
}

/// Queues a message behind the run that is active or waits; the task that it becomes has the id of its run.
async fn queue(
    hub: &Arc<Hub>,
    caller: &Caller,
    thread: &ThreadRecord,
    messages: Vec<Message>,
    tenant: Option<&str>,
    run: &RunId,
) -> Result<(), ApiError> {
    let agent_folder = hub.agent_folder(&thread.cwd).await?;
    if let Some(agent) = tenant {
        agent_folder.runtime().resolved(agent)?;
    }
    let mut job = MailboxJob::new(thread.id.clone(), messages, now_ms())
        .with_agent_id(tenant.unwrap_or_default())
        .with_origin(MailboxJobOrigin::A2A)
        .with_correlation_id(caller.correlation_id.clone())
        .with_run_id(run);
    job.job_id = JobId::from(run.as_str());
    job.sender_id = Some(caller.token.clone());
    agent_folder.runtime().submit(job).await?;
    hub.wake(&thread.id);
    Ok(())
}

pub(super) async fn list(hub: &Arc<Hub>, caller: &Caller, asked: TaskQuery) -> Result<Value, A2aError> {
    demand(caller, TokenScope::Read)?;
    let context = asked.context_id.filter(|id| !id.as_str().is_empty());
    let offset = match asked.page_token.as_deref() {
        None | Some("") => 0,
        Some(token) => token.parse().map_err(|_| ApiError::field("pageToken", "not a token of this list"))?,
    };
    let slice = Paging { offset, limit: asked.page_size.filter(|size| *size > 0) }.slice();
    // Messages that wait come first: they are the newest tasks.
    let waiting = waiting_tasks(hub, context.as_ref()).await?;
    let runs_from = slice.offset.saturating_sub(waiting.len());
    let mut tasks: Vec<A2aTask> = waiting.into_iter().skip(slice.offset).take(slice.limit).collect();
    let rest = Slice { offset: runs_from, limit: slice.limit - tasks.len() };
    let runs =
        hub.store().latest_runs(context.as_ref(), None, one_more(rest)).await.map_err(ApiError::from)?;
    let more = runs.len() > rest.limit;
    for run in runs.iter().take(rest.limit) {
        tasks.push(task_of_run(hub.store(), run, asked.history_length.or(Some(0))).await?);
    }
    let next = if more { (slice.offset + slice.limit).to_string() } else { String::new() };
    let size = tasks.len();
    Ok(json!({ "tasks": tasks, "nextPageToken": next, "pageSize": size, "totalSize": size + slice.offset }))
}

/// Returns the messages that wait to become tasks, the newest first.
async fn waiting_tasks(hub: &Hub, context: Option<&ThreadId>) -> Result<Vec<A2aTask>, ApiError> {
    let jobs = hub.store().open_jobs(context, Slice { offset: 0, limit: MAX_WAITING }).await?;
    let mut tasks = Vec::new();
    for job in jobs.iter().rev().filter(|job| job.origin == MailboxJobOrigin::A2A) {
        let run = job.wanted_run_id().filter(|run| run.as_str() == job.job_id.as_str());
        if let Some(run) = run
            && hub.store().load_run(&run).await?.is_none()
        {
            tasks.push(submitted(job));
        }
    }
    Ok(tasks)
}

pub(super) async fn cancel(hub: &Arc<Hub>, caller: &Caller, id: &str) -> Result<A2aTask, A2aError> {
    demand(caller, TokenScope::Chat)?;
    let run = match task_of(hub, id).await? {
        Task::Run(run) => *run,
        Task::Job(job) => {
            let mailboxes = hub.store().mailboxes().map_err(ApiError::from)?;
            let cancelled = mailboxes.cancel(&job.job_id, now_ms()).await.map_err(ApiError::internal)?;
            if let Some(job) = cancelled.filter(|job| job.status == MailboxJobStatus::Cancelled) {
                return Ok(submitted(&job));
            }
            // It has just become a run.
            run_of(hub, id).await?
        }
    };
    let over = || A2aError::new(StatusCode::CONFLICT, "TASK_NOT_CANCELABLE", "the task is over");
    if run.status == RunStatus::Done {
        return Err(over());
    }
    let thread = hub.thread(&run.thread_id).await?;
    let mut reader = RunReader::new(hub, &thread.id).await?.of(run.id.clone());
    if !hub.cancel(&thread).await? {
        return Err(over());
    }
    // A run that waited has already ended; one that was active reports its end.
    let mut now = run_of(hub, id).await?;
    while now.status != RunStatus::Done && reader.next().await.is_some() {
        now = run_of(hub, id).await?;
    }
    Ok(task_of_run(hub.store(), &now, None).await?)
}
