//! The events of a task.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_encode::a2a::{A2aEncoder, A2aResponse};
use futures::Stream;
use serde_json::Value;

use super::error::A2aError;
use super::tasks::{SentTask, Task, job_of, submitted, task_of};
use crate::access::{Caller, TokenScope};
use crate::error::ApiError;
use crate::follow::{Follower, Frame};
use crate::guard::demand;
use crate::hub::Hub;
use crate::push::task_of_run;
use crate::reading::RunReader;
use crate::sse;

/// Where the events of a task come from.
enum Events {
    Run(RunReader),
    Thread(Follower),
}

/// The events of a task for one client.
pub(super) struct TaskStream {
    hub: Arc<Hub>,
    thread: ThreadId,
    events: Events,
    encoder: A2aEncoder,
    first: Option<Vec<A2aResponse>>,
}

impl TaskStream {
    async fn next(&mut self) -> Option<Vec<A2aResponse>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let frame = match &mut self.events {
            Events::Run(reader) => reader.next().await?,
            Events::Thread(_) if self.encoder.is_finished() => return None,
            Events::Thread(follower) => follower.next().await?,
        };
        Some(encoded(frame, &mut self.encoder, &self.hub, &self.thread).await)
    }

    /// The events as frames, each in the form that `shape` gives it.
    pub(super) fn frames(
        self: Box<Self>,
        shape: impl Fn(A2aResponse) -> Value + Send + Sync + 'static,
    ) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        let shape = Arc::new(shape);
        sse::chunks(None, self, move |mut stream| {
            let shape = Arc::clone(&shape);
            async move {
                let events = stream.next().await?;
                Some((events.into_iter().map(|event| shape(event)).collect(), stream))
            }
        })
    }
}

pub(super) async fn stream(hub: &Arc<Hub>, turn: SentTask) -> Result<Box<TaskStream>, A2aError> {
    let mut encoder = A2aEncoder::new(turn.thread.as_str(), turn.run.as_str());
    let first = match &turn.known {
        Some(run) => Some(encoder.begin(task_of_run(hub.store(), run, turn.history).await?)),
        None => job_of(hub, turn.run.as_str()).await?.map(|job| encoder.begin(submitted(&job))),
    };
    let events = Events::Run(turn.reader);
    Ok(Box::new(TaskStream { hub: Arc::clone(hub), thread: turn.thread, events, encoder, first }))
}

async fn encoded(frame: Frame, encoder: &mut A2aEncoder, hub: &Hub, thread: &ThreadId) -> Vec<A2aResponse> {
    match frame {
        Frame::Event { event, .. } => {
            if let AgentEvent::RunFinish { termination: TerminationReason::Suspended, .. } = &*event {
                encoder.expect(&hub.store().waiting_below(thread).await.unwrap_or_default());
            }
            encoder.encode(&event)
        }
        Frame::Message(_) => Vec::new(),
        Frame::Dropped(_) => encoder.fail(),
    }
}

pub(super) async fn subscribe(
    hub: &Arc<Hub>,
    caller: &Caller,
    id: &str,
) -> Result<Box<TaskStream>, A2aError> {
    demand(caller, TokenScope::Read)?;
    let run = match task_of(hub, id).await? {
        Task::Run(run) => *run,
        Task::Job(job) => {
            let reader = RunReader::new(hub, &job.mailbox_id).await?.of(RunId::from(id)).queued(hub);
            let mut encoder = A2aEncoder::new(job.mailbox_id.as_str(), id);
            let first = Some(encoder.begin(submitted(&job)));
            let (hub, thread) = (Arc::clone(hub), job.mailbox_id.clone());
            return Ok(Box::new(TaskStream { hub, thread, events: Events::Run(reader), encoder, first }));
        }
    };
    if run.status == RunStatus::Done {
        return Err(A2aError::unsupported("the task has ended; get it instead"));
    }
    let thread = run.thread_id.clone();
    let follower = Follower::from_now(Arc::clone(hub), thread.clone()).await.map_err(ApiError::from)?;
    let mut encoder = A2aEncoder::new(thread.as_str(), run.id.as_str());
    let first = Some(encoder.begin(task_of_run(hub.store(), &run, Some(0)).await?));
    let events = Events::Thread(follower);
    Ok(Box::new(TaskStream { hub: Arc::clone(hub), thread, events, encoder, first }))
}
